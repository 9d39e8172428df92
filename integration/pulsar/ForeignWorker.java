import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.DeadLetterPolicy;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.Schema;
import org.apache.pulsar.client.api.SubscriptionInitialPosition;
import org.apache.pulsar.client.api.SubscriptionType;

/** Somebody else's part of PIP-186, with Pulsar's own client: sends what its text describes, and consumes it. */
public class ForeignWorker {
    static final String TOPIC = "persistent://pulsar/system/__ledger_deletion";

    public enum LedgerComponent { MANAGED_LEDGER, MANAGED_CURSOR, SCHEMA_STORAGE }

    public enum LedgerType { LEDGER, OFFLOAD_LEDGER }

    public static class OffloadContext {
        public long lsb;
        public long msb;
        public String driverName;
        public Map<String, String> metadata;
    }

    public static class PendingDeleteLedgerInfo {
        public String topicName;
        public LedgerComponent ledgerComponent;
        public String cursorName;
        public Long schemaId;
        public LedgerType ledgerType;
        public Long ledgerId;
        public OffloadContext offloadContext;
    }

    public static void main(String[] arguments) throws Exception {
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in));
        try (PulsarClient client = PulsarClient.builder().serviceUrl(arguments[0])
                .operationTimeout(10, TimeUnit.MINUTES).build()) {
            for (String command = commands.readLine(); command != null; command = commands.readLine()) {
                String[] words = command.split(" ");
                if (words[0].equals("send")) {
                    send(client, Long.parseLong(words[1]));
                } else {
                    work(client, Integer.parseInt(words[1]), Long.parseLong(words[2]), Long.parseLong(words[3]));
                }
                System.out.println("DONE");
            }
        }
    }

    static void send(PulsarClient client, long ledger) throws Exception {
        try (Producer<PendingDeleteLedgerInfo> producer =
                client.newProducer(Schema.AVRO(PendingDeleteLedgerInfo.class)).topic(TOPIC).enableBatching(false).create()) {
            PendingDeleteLedgerInfo info = new PendingDeleteLedgerInfo();
            info.topicName = "acme/orders/placed";
            info.ledgerComponent = LedgerComponent.MANAGED_LEDGER;
            info.ledgerType = LedgerType.LEDGER;
            info.ledgerId = ledger;
            producer.send(info);
            info.ledgerType = LedgerType.OFFLOAD_LEDGER;
            info.offloadContext = new OffloadContext();
            info.offloadContext.msb = 0x0F00000000000001L;
            info.offloadContext.lsb = Long.MIN_VALUE + 2;
            info.offloadContext.driverName = "aws-s3";
            info.offloadContext.metadata = new TreeMap<>(Map.of("bucket", "b", "region", "r"));
            producer.send(info);
        }
    }

    /** Takes so many messages of ledgers from `least` on; the one of this ledger is to come again after a second. */
    static void work(PulsarClient client, int number, long again, long least) throws Exception {
        try (Consumer<PendingDeleteLedgerInfo> consumer = client.newConsumer(Schema.AVRO(PendingDeleteLedgerInfo.class))
                .topic(TOPIC)
                .subscriptionName("ledger-deletion-worker")
                .subscriptionType(SubscriptionType.Shared)
                .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest)
                .enableRetry(true)
                .deadLetterPolicy(DeadLetterPolicy.builder()
                        .retryLetterTopic(TOPIC + "-RETRY").deadLetterTopic(TOPIC + "-DLQ").maxRedeliverCount(1).build())
                .subscribe()) {
            int found = 0;
            while (found < number) {
                Message<PendingDeleteLedgerInfo> message = consumer.receive(600, TimeUnit.SECONDS);
                if (message == null) {
                    throw new IllegalStateException("nothing came, after " + found + " messages");
                }
                PendingDeleteLedgerInfo info = valueOf(message);
                if (info == null || info.ledgerId == null || info.ledgerId < least) {
                    consumer.acknowledge(message);
                    continue;
                }
                found++;
                OffloadContext context = info.offloadContext;
                System.out.println("GOT " + info.ledgerId + " " + info.ledgerType + " " + info.ledgerComponent + " "
                        + info.topicName + " " + info.cursorName + " " + message.getProperty("RECONSUMETIMES") + " "
                        + (context == null ? null : context.msb + ":" + context.lsb + ":" + context.driverName + ":"
                                + new TreeMap<>(context.metadata)));
                if (info.ledgerId == again) {
                    consumer.reconsumeLater(message, 1, TimeUnit.SECONDS);
                } else {
                    consumer.acknowledge(message);
                }
            }
        }
    }

    static PendingDeleteLedgerInfo valueOf(Message<PendingDeleteLedgerInfo> message) {
        try {
            return message.getValue();
        } catch (RuntimeException damaged) {
            return null;
        }
    }
}
