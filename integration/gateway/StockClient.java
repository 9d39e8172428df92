import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.TimeUnit;
import java.util.regex.Pattern;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.KeySharedPolicy;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.MessageId;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.PulsarClientException;
import org.apache.pulsar.client.api.Range;
import org.apache.pulsar.client.api.Reader;
import org.apache.pulsar.client.api.Schema;
import org.apache.pulsar.client.api.SubscriptionInitialPosition;
import org.apache.pulsar.client.api.SubscriptionType;
import org.apache.pulsar.client.api.TypedMessageBuilder;
import org.apache.pulsar.client.api.schema.GenericRecord;
import org.apache.pulsar.client.impl.BatchMessageIdImpl;
import org.apache.pulsar.client.impl.MessageIdImpl;

/**
 * Pulsar's own Java client as a process: integration/gateway/clients.py says how. Also for client 2.11.
 */
public final class StockClient {
    /** What messages with a schema hold: its first version, and its second one. */
    public static final class Order {
        public String customer;
        public int amount;
    }

    public static final class LaterOrder {
        public String customer;
        public int amount;
        public String note;
    }

    private final PulsarClient client;
    private final Map<String, Reader<?>> readers = new HashMap<>();
    private final Map<String, Consumer<?>> consumers = new HashMap<>();
    private final Map<String, Map<String, Message<?>>> received = new HashMap<>();

    private StockClient(PulsarClient client) {
        this.client = client;
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream out = System.out;
        System.setOut(System.err);
        StockClient stock = new StockClient(PulsarClient.builder().serviceUrl(arguments[0])
                .operationTimeout(180, TimeUnit.SECONDS).build());
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            JsonObject answer = new JsonObject();
            try {
                answer.add("answer", stock.serve(JsonParser.parseString(line).getAsJsonObject()));
            } catch (PulsarClientException error) {
                answer.addProperty("error", error.getClass().getSimpleName());
            } catch (Exception defect) {
                defect.printStackTrace();
                answer.addProperty("error", defect.toString());
            }
            out.println(answer);
        }
        Runtime.getRuntime().halt(0);
    }

    private JsonElement serve(JsonObject asked) throws Exception {
        String of = asked.has("of") ? asked.get("of").getAsString() : "";
        Reader<?> reader = readers.get(of);
        Consumer<?> consumer = consumers.get(of);
        switch (asked.get("do").getAsString()) {
            case "reader" -> reader(asked);
            case "consumer" -> consumer(asked);
            case "take" -> {
                return take(asked, of);
            }
            case "ack" -> acknowledge(asked, of);
            case "nack" -> {
                for (JsonElement each : asked.getAsJsonArray("ids")) {
                    consumer.negativeAcknowledge(received.get(of).get(key(each)));
                }
            }
            case "redeliver" -> consumer.redeliverUnacknowledgedMessages();
            case "resume" -> consumer.resume();
            case "seek" -> seek(asked.get("to"), reader, consumer);
            case "available" -> {
                return JsonParser.parseString(String.valueOf(reader.hasMessageAvailable()));
            }
            case "last" -> {
                return said(consumer.getLastMessageId());
            }
            case "unsubscribe" -> consumer.unsubscribe();
            case "close" -> close(of);
            case "table" -> {
                return table(asked.get("topic").getAsString());
            }
            case "partitions" -> {
                JsonArray found = new JsonArray();
                client.getPartitionsForTopic(asked.get("topic").getAsString()).get().forEach(found::add);
                return found;
            }
            case "chunks" -> chunks(asked);
            case "orders" -> orders(asked.get("topic").getAsString());
            default -> throw new IllegalArgumentException(asked.toString());
        }
        return new JsonObject();
    }

    private void reader(JsonObject asked) throws Exception {
        var builder = client.newReader(schema(asked)).topic(asked.get("topic").getAsString())
                .startMessageId(id(asked.get("start")))
                .receiverQueueSize(number(asked, "queue", 1000))
                .readCompacted(flag(asked, "compacted"));
        if (flag(asked, "inclusive")) {
            builder.startMessageIdInclusive();
        }
        if (asked.has("keys")) {
            builder.defaultCryptoKeyReader("file://" + asked.get("keys").getAsString());
        }
        readers.put(asked.get("as").getAsString(), builder.create());
        received.put(asked.get("as").getAsString(), new HashMap<>());
    }

    private void consumer(JsonObject asked) throws Exception {
        var builder = client.newConsumer(schema(asked))
                .subscriptionName(asked.get("subscription").getAsString())
                .subscriptionType(SubscriptionType.valueOf(asked.get("type").getAsString()))
                .subscriptionInitialPosition(SubscriptionInitialPosition.valueOf(
                        asked.has("position") ? asked.get("position").getAsString() : "Earliest"))
                .receiverQueueSize(number(asked, "queue", 1000))
                .negativeAckRedeliveryDelay(number(asked, "nack_ms", 60_000), TimeUnit.MILLISECONDS)
                .ackTimeout(number(asked, "ack_timeout_ms", 0), TimeUnit.MILLISECONDS)
                .enableBatchIndexAcknowledgment(flag(asked, "batch_index"))
                .readCompacted(flag(asked, "compacted"))
                .startPaused(flag(asked, "paused"))
                .priorityLevel(number(asked, "priority", 0))
                .acknowledgmentGroupTime(0, TimeUnit.MILLISECONDS);
        if (asked.has("pattern")) {
            builder.topicsPattern(Pattern.compile(asked.get("pattern").getAsString()));
        } else {
            List<String> topics = new ArrayList<>();
            asked.getAsJsonArray("topics").forEach(each -> topics.add(each.getAsString()));
            builder.topics(topics);
        }
        if (asked.has("name")) {
            builder.consumerName(asked.get("name").getAsString());
        }
        if (asked.has("ranges")) {
            List<Range> ranges = new ArrayList<>();
            asked.getAsJsonArray("ranges").forEach(each -> ranges.add(
                    Range.of(each.getAsJsonArray().get(0).getAsInt(), each.getAsJsonArray().get(1).getAsInt())));
            builder.keySharedPolicy(KeySharedPolicy.stickyHashRange().ranges(ranges));
        }
        if (flag(asked, "inclusive")) {
            builder.startMessageIdInclusive();
        }
        if (asked.has("keys")) {
            builder.defaultCryptoKeyReader("file://" + asked.get("keys").getAsString());
        }
        consumers.put(asked.get("as").getAsString(), builder.subscribe());
        received.put(asked.get("as").getAsString(), new HashMap<>());
    }

    private JsonElement take(JsonObject asked, String of) throws Exception {
        JsonArray messages = new JsonArray();
        int milliseconds = asked.get("ms").getAsInt();
        Reader<?> reader = readers.get(of);
        String end = "count";
        for (int left = asked.get("count").getAsInt(); left > 0; left--) {
            Message<?> message = reader != null ? reader.readNext(milliseconds, TimeUnit.MILLISECONDS)
                    : consumers.get(of).receive(milliseconds, TimeUnit.MILLISECONDS);
            if (message == null) {
                end = "nothing";
                break;
            }
            received.get(of).put(said(message.getMessageId()).toString(), message);
            messages.add(described(message));
        }
        JsonObject found = new JsonObject();
        found.add("messages", messages);
        found.addProperty("end", end);
        return found;
    }

    private void acknowledge(JsonObject asked, String of) throws Exception {
        Consumer<?> consumer = consumers.get(of);
        for (JsonElement each : asked.getAsJsonArray("ids")) {
            Message<?> message = received.get(of).get(key(each));
            if (flag(asked, "cumulative")) {
                consumer.acknowledgeCumulativeAsync(message).get();
            } else {
                consumer.acknowledgeAsync(message).get();
            }
        }
        Thread.sleep(100); // what was answered is not yet what was carried out
    }

    private void seek(JsonElement to, Reader<?> reader, Consumer<?> consumer) throws Exception {
        boolean isTime = to.isJsonPrimitive() && to.getAsJsonPrimitive().isNumber();
        if (reader != null && isTime) {
            reader.seek(to.getAsLong());
        } else if (reader != null) {
            reader.seek(id(to));
        } else if (isTime) {
            consumer.seek(to.getAsLong());
        } else {
            consumer.seek(id(to));
        }
    }

    private void close(String of) throws Exception {
        if (readers.containsKey(of)) {
            readers.remove(of).close();
        } else {
            consumers.remove(of).close();
        }
    }

    private JsonElement table(String topic) throws Exception {
        TreeMap<String, String> values = new TreeMap<>();
        try (var table = client.newTableViewBuilder(Schema.BYTES).topic(topic).create()) {
            for (var each : table.entrySet()) {
                values.put(each.getKey(), digest(each.getValue()));
            }
        }
        JsonObject found = new JsonObject();
        values.forEach(found::addProperty);
        return found;
    }

    /** Messages of several entries. */
    private void chunks(JsonObject asked) throws Exception {
        try (var producer = client.newProducer().topic(asked.get("topic").getAsString()).producerName("chunks")
                .enableBatching(false).enableChunking(true).chunkMaxMessageSize(1000).create()) {
            for (int number = 0; number < asked.get("count").getAsInt(); number++) {
                byte[] value = new byte[number % 5 == 0 ? 4321 : 17];
                java.util.Arrays.fill(value, (byte) number);
                producer.newMessage().value(value).property("n", String.valueOf(number)).send();
            }
        }
    }

    /** Messages with two versions of a schema. */
    private void orders(String topic) throws Exception {
        try (var producer = client.newProducer(Schema.AVRO(Order.class)).topic(topic).producerName("orders").create()) {
            for (int number = 0; number < 10; number++) {
                Order order = new Order();
                order.customer = "c" + number;
                order.amount = number;
                producer.send(order);
            }
        }
        try (var producer = client.newProducer(Schema.AVRO(LaterOrder.class)).topic(topic).producerName("later")
                .create()) {
            for (int number = 0; number < 10; number++) {
                LaterOrder order = new LaterOrder();
                order.customer = "d" + number;
                order.amount = -number;
                order.note = "later";
                TypedMessageBuilder<LaterOrder> built = producer.newMessage().value(order).key("k");
                built.orderingKey(new byte[] {(byte) number}).send();
            }
        }
    }

    private static JsonElement described(Message<?> message) throws Exception {
        JsonObject found = new JsonObject();
        byte[] value = message.getData();
        found.add("id", said(message.getMessageId()));
        found.addProperty("topic", message.getTopicName());
        found.addProperty("sha256", digest(value));
        found.addProperty("size", value.length);
        found.addProperty("key", message.hasKey() ? message.getKey() : "");
        found.addProperty("ordering",
                message.hasOrderingKey() ? HexFormat.of().formatHex(message.getOrderingKey()) : "");
        JsonObject properties = new JsonObject();
        new TreeMap<>(message.getProperties()).forEach(properties::addProperty);
        found.add("properties", properties);
        found.addProperty("published", message.getPublishTime());
        found.addProperty("event", message.getEventTime());
        found.addProperty("redeliveries", message.getRedeliveryCount());
        found.addProperty("producer", message.getProducerName());
        found.addProperty("sequence", message.getSequenceId());
        found.addProperty("schema",
                message.getSchemaVersion() == null ? "" : HexFormat.of().formatHex(message.getSchemaVersion()));
        found.addProperty("index", message.getIndex().map(String::valueOf).orElse(""));
        found.addProperty("brokered", message.getBrokerPublishTime().map(String::valueOf).orElse(""));
        Object read = message.getValue();
        if (read instanceof GenericRecord) {
            StringBuilder fields = new StringBuilder();
            GenericRecord read1 = (GenericRecord) read;
            read1.getFields().forEach(field -> fields.append(field.getName()).append('=')
                    .append(read1.getField(field)).append(' '));
            found.addProperty("value", fields.toString());
        } else if (read instanceof Order) {
            found.addProperty("value", ((Order) read).customer + " " + ((Order) read).amount);
        }
        return found;
    }

    private static JsonArray said(MessageId id) throws Exception {
        MessageIdImpl found = (MessageIdImpl) MessageId.fromByteArray(id.toByteArray());
        JsonArray said = new JsonArray();
        said.add(found.getLedgerId());
        said.add(found.getEntryId());
        said.add(found.getPartitionIndex());
        said.add(found instanceof BatchMessageIdImpl ? ((BatchMessageIdImpl) found).getBatchIndex() : -1);
        return said;
    }

    private static MessageId id(JsonElement said) {
        if (said.isJsonPrimitive()) {
            return said.getAsString().equals("earliest") ? MessageId.earliest : MessageId.latest;
        }
        JsonArray from = said.getAsJsonArray();
        long ledger = from.get(0).getAsLong();
        long entry = from.get(1).getAsLong();
        int partition = from.get(2).getAsInt();
        int batch = from.get(3).getAsInt();
        return batch < 0 ? new MessageIdImpl(ledger, entry, partition)
                : new BatchMessageIdImpl(ledger, entry, partition, batch);
    }

    private static String key(JsonElement id) {
        return id.toString();
    }

    private static Schema<?> schema(JsonObject asked) {
        String wanted = asked.has("schema") ? asked.get("schema").getAsString() : "";
        return switch (wanted) {
            case "auto" -> Schema.AUTO_CONSUME();
            case "avro" -> Schema.AVRO(Order.class);
            default -> Schema.BYTES;
        };
    }

    private static int number(JsonObject asked, String name, int otherwise) {
        return asked.has(name) ? asked.get(name).getAsInt() : otherwise;
    }

    private static boolean flag(JsonObject asked, String name) {
        return asked.has(name) && asked.get(name).getAsBoolean();
    }

    private static String digest(byte[] value) throws Exception {
        byte[] all = MessageDigest.getInstance("SHA-256").digest(value);
        return HexFormat.of().formatHex(all).substring(0, 16);
    }
}
