import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.Writer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.security.MessageDigest;
import java.util.HexFormat;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.MessageId;
import org.apache.pulsar.client.api.MessageIdAdv;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.Reader;
import org.apache.pulsar.client.api.SubscriptionInitialPosition;
import org.apache.pulsar.client.api.SubscriptionType;
import org.apache.pulsar.client.impl.BatchMessageIdImpl;

/**
 * Pulsar's own Java client as a process: reads and consumes what it is told. integration/bridge/clients.py says how.
 */
public final class StockReader {
    private static final int AFTERWARDS_MS = 300; // within which a message too many would come

    private final PulsarClient client;

    private StockReader(PulsarClient client) {
        this.client = client;
    }

    public static void main(String[] arguments) throws Exception {
        StockReader stock = new StockReader(PulsarClient.builder().serviceUrl(arguments[0])
                .operationTimeout(180, TimeUnit.SECONDS).build());
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        var threads = Executors.newCachedThreadPool();
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            JsonObject request = JsonParser.parseString(line).getAsJsonObject();
            threads.execute(() -> stock.serve(request));
        }
        Runtime.getRuntime().halt(0);
    }

    private void serve(JsonObject request) {
        Path to = Path.of(request.get("to").getAsString());
        Path part = Path.of(to + ".part");
        try {
            try (Writer out = Files.newBufferedWriter(part)) {
                JsonObject end = new JsonObject();
                try {
                    end.addProperty("end", request.has("subscription") ? consume(request, out) : read(request, out));
                } catch (Exception thrown) {
                    thrown.printStackTrace();
                    end.addProperty("end", thrown.toString());
                }
                out.write(end + "\n");
            }
            Files.move(part, to, StandardCopyOption.ATOMIC_MOVE);
        } catch (Exception thrown) {
            thrown.printStackTrace();
            Runtime.getRuntime().halt(1);
        }
    }

    private String read(JsonObject request, Writer out) throws Exception {
        var builder = client.newReader().topic(request.get("topic").getAsString())
                .startMessageId(start(request)).startMessageIdInclusive()
                .readCompacted(request.get("compacted").getAsBoolean());
        if (request.has("key")) {
            builder.defaultCryptoKeyReader("file://" + request.get("key").getAsString());
        }
        int count = request.get("count").getAsInt();
        int patience = request.get("patience").getAsInt();
        try (Reader<byte[]> reader = builder.create()) {
            for (int number = 0; number < count; number++) {
                Message<byte[]> message = reader.readNext(patience, TimeUnit.SECONDS);
                if (message == null) {
                    return "patience";
                }
                write(out, message);
            }
            Message<byte[]> more = request.get("whole").getAsBoolean()
                    ? reader.readNext(AFTERWARDS_MS, TimeUnit.MILLISECONDS) : null;
            return more == null ? "count" : "more: " + more.getMessageId();
        }
    }

    private static MessageId start(JsonObject request) {
        if (!request.has("start")) {
            return MessageId.earliest;
        }
        var from = request.getAsJsonArray("start");
        return new BatchMessageIdImpl(
                from.get(0).getAsLong(), from.get(1).getAsLong(), -1, from.get(2).getAsInt());
    }

    private String consume(JsonObject request, Writer out) throws Exception {
        var builder = client.newConsumer().topic(request.get("topic").getAsString())
                .subscriptionName(request.get("subscription").getAsString())
                .subscriptionType(SubscriptionType.valueOf(request.get("type").getAsString()))
                .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest)
                .enableBatchIndexAcknowledgment(true)
                .acknowledgmentGroupTime(0, TimeUnit.MILLISECONDS);
        if (request.has("key")) {
            builder.defaultCryptoKeyReader("file://" + request.get("key").getAsString());
        }
        int count = request.get("count").getAsInt();
        int patience = request.get("patience").getAsInt();
        int every = request.get("every").getAsInt();
        try (Consumer<byte[]> consumer = builder.subscribe()) {
            for (int number = 0; number < count; number++) {
                Message<byte[]> message = consumer.receive(patience, TimeUnit.SECONDS);
                if (message == null) {
                    return "patience";
                }
                long entry = ((MessageIdAdv) message.getMessageId()).getEntryId();
                boolean acknowledged = every > 0 && entry % every != every - 1;
                if (acknowledged) {
                    consumer.acknowledgeAsync(message).get(patience, TimeUnit.SECONDS);
                }
                write(out, message, acknowledged);
            }
            Message<byte[]> more = request.get("whole").getAsBoolean()
                    ? consumer.receive(AFTERWARDS_MS, TimeUnit.MILLISECONDS) : null;
            return more == null ? "count" : "more: " + more.getMessageId();
        }
    }

    private static void write(Writer out, Message<byte[]> message) throws Exception {
        write(out, message, false);
    }

    private static void write(Writer out, Message<byte[]> message, boolean acknowledged) throws Exception {
        MessageIdAdv id = (MessageIdAdv) message.getMessageId();
        JsonObject line = new JsonObject();
        line.addProperty("ledger", id.getLedgerId());
        line.addProperty("entry", id.getEntryId());
        line.addProperty("batch", id.getBatchIndex());
        line.addProperty("key", message.hasKey() ? message.getKey() : "");
        JsonObject properties = new JsonObject();
        message.getProperties().forEach(properties::addProperty);
        line.add("properties", properties);
        line.addProperty("published", message.getPublishTime());
        line.addProperty("event", message.getEventTime());
        byte[] value = message.getData();
        line.addProperty("size", value.length);
        line.addProperty("sha256", HexFormat.of().formatHex(MessageDigest.getInstance("SHA-256").digest(value)));
        line.addProperty("acknowledged", acknowledged);
        out.write(line + "\n");
    }
}
