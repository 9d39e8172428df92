import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.OutputStreamWriter;
import java.io.Writer;
import java.net.InetAddress;
import java.net.Socket;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Executors;
import java.util.concurrent.Semaphore;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.bookkeeper.bookie.Cookie;
import org.apache.bookkeeper.client.BookKeeper;
import org.apache.bookkeeper.client.BookKeeperAdmin;
import org.apache.bookkeeper.client.api.DigestType;
import org.apache.bookkeeper.client.api.Handle;
import org.apache.bookkeeper.client.api.LedgerEntries;
import org.apache.bookkeeper.client.api.LedgerEntry;
import org.apache.bookkeeper.client.api.LedgerMetadata;
import org.apache.bookkeeper.client.api.ReadHandle;
import org.apache.bookkeeper.client.api.WriteAdvHandle;
import org.apache.bookkeeper.client.api.WriteHandle;
import org.apache.bookkeeper.conf.ClientConfiguration;
import org.apache.bookkeeper.conf.ServerConfiguration;
import org.apache.bookkeeper.meta.MetadataDrivers;
import org.apache.bookkeeper.net.BookieId;

/**
 * BookKeeper's own client as a process, for tests: writer, reader, closer, recoverer.
 *
 * <p>Arguments: the metadata service's URI, and the port on 127.0.0.1 where the test listens. From there comes one JSON request a
 * line, with "id" and "do"; requests run side by side. Back go answers, {"id", "answer"} or {"id", "error", "message"}, and
 * {"ledger", "acknowledged"} for each entry that an ensemble has acknowledged. The process ends with the connection.
 */
public final class OfficialClient {
    private static final int QUESTION_SECONDS = 3; // which are asked again

    private final String metadataServiceUri;
    private final Writer out;
    private final Map<String, BookKeeper> clients = new ConcurrentHashMap<>();
    private final Map<Long, Written> written = new ConcurrentHashMap<>();
    private Questions questions;

    private OfficialClient(String metadataServiceUri, Writer out) {
        this.metadataServiceUri = metadataServiceUri;
        this.out = out;
    }

    public static void main(String[] arguments) throws Exception {
        Socket socket = new Socket(InetAddress.getLoopbackAddress(), Integer.parseInt(arguments[1]));
        socket.setTcpNoDelay(true);
        Writer out = new OutputStreamWriter(socket.getOutputStream(), StandardCharsets.UTF_8);
        OfficialClient client = new OfficialClient(arguments[0], out);
        BufferedReader in = new BufferedReader(new InputStreamReader(socket.getInputStream(), StandardCharsets.UTF_8));
        var threads = Executors.newCachedThreadPool();
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            JsonObject request = JsonParser.parseString(line).getAsJsonObject();
            threads.execute(() -> client.serve(request));
        }
        Runtime.getRuntime().halt(0); // without closing anything: ledgers stay open
    }

    private void serve(JsonObject request) {
        JsonObject answer = new JsonObject();
        answer.add("id", request.get("id"));
        try {
            answer.add("answer", run(request));
        } catch (Throwable thrown) {
            Throwable cause = thrown;
            while ((cause instanceof CompletionException || cause instanceof ExecutionException) && cause.getCause() != null) {
                cause = cause.getCause();
            }
            cause.printStackTrace();
            answer.addProperty("error", cause.getClass().getSimpleName());
            answer.addProperty("message", String.valueOf(cause.getMessage()));
        }
        send(answer);
    }

    private synchronized void send(JsonObject line) {
        try {
            out.write(line + "\n");
            out.flush();
        } catch (IOException gone) {
            Runtime.getRuntime().halt(0);
        }
    }

    private JsonElement run(JsonObject request) throws Exception {
        return switch (request.get("do").getAsString()) {
            case "format" -> format();
            case "forget cookie" -> forgetCookie(request);
            case "await bookie" -> awaitBookie(request);
            case "create" -> create(request);
            case "add" -> add(request);
            case "close" -> close(request);
            case "open" -> open(request);
            case "read" -> read(request);
            case "metadata" -> described(metadata(request));
            case "ask" -> ask(request);
            case "delete" -> delete(request);
            default -> throw new IllegalArgumentException(request.toString());
        };
    }

    // The cluster

    private ServerConfiguration serverConfiguration() {
        return new ServerConfiguration().setMetadataServiceUri(metadataServiceUri);
    }

    private JsonElement format() throws Exception {
        JsonObject answer = new JsonObject();
        answer.addProperty("formatted", BookKeeperAdmin.initNewCluster(serverConfiguration()));
        return answer;
    }

    private JsonElement forgetCookie(JsonObject request) throws Exception {
        BookieId bookie = BookieId.parse(request.get("bookie").getAsString());
        return MetadataDrivers.runFunctionWithRegistrationManager(serverConfiguration(), manager -> {
            try {
                var cookie = Cookie.readFromRegistrationManager(manager, bookie);
                cookie.getValue().deleteFromRegistrationManager(manager, bookie, cookie.getVersion());
            } catch (Exception failed) {
                throw new CompletionException(failed);
            }
            return new JsonObject();
        });
    }

    /**
     * One client for each protocol version ("wire"), version of new ledgers' metadata ("format"), way to recover ("parallel") and
     * patience with bookies ("timeout", seconds).
     */
    private BookKeeper client(JsonObject request) {
        boolean v2 = request.has("wire") && request.get("wire").getAsInt() == 2;
        int format = request.has("format") ? request.get("format").getAsInt() : 3;
        boolean parallel = request.has("parallel");
        int timeout = request.get("timeout").getAsInt();
        return clients.computeIfAbsent(v2 + "/" + format + "/" + parallel + "/" + timeout, key -> {
            try {
                return new BookKeeper(configuration(v2, format, timeout).setEnableParallelRecoveryRead(parallel));
            } catch (Exception failed) {
                throw new CompletionException(failed);
            }
        });
    }

    private ClientConfiguration configuration(boolean v2, int format, int timeout) {
        ClientConfiguration configuration = new ClientConfiguration();
        configuration.setMetadataServiceUri(metadataServiceUri);
        configuration.setLedgerMetadataFormatVersion(format);
        configuration.setUseV2WireProtocol(v2);
        configuration.setAddEntryTimeout(timeout);
        configuration.setReadEntryTimeout(timeout);
        configuration.setClientConnectTimeoutMillis(timeout * 1000);
        configuration.setSpeculativeReadTimeout(500);
        configuration.setNumIOThreads(1);
        configuration.setNumWorkerThreads(2);
        return configuration;
    }

    // Writing

    /** An open ledger that we write. */
    private static final class Written {
        private final Handle handle;
        private long next;

        private Written(Handle handle) {
            this.handle = handle;
        }

        private CompletableFuture<Long> append(byte[] data) {
            long entry = next++;
            return handle instanceof WriteAdvHandle advanced
                    ? advanced.writeAsync(entry, data)
                    : ((WriteHandle) handle).appendAsync(data);
        }
    }

    private JsonElement create(JsonObject request) throws Exception {
        Map<String, byte[]> custom = new HashMap<>();
        request.getAsJsonObject("custom").entrySet().forEach(e -> custom.put(e.getKey(), utf8(e.getValue().getAsString())));
        var operation = client(request).newCreateLedgerOp()
                .withEnsembleSize(request.get("ensemble").getAsInt())
                .withWriteQuorumSize(request.get("write quorum").getAsInt())
                .withAckQuorumSize(request.get("ack quorum").getAsInt())
                .withDigestType(digest(request))
                .withPassword(password(request))
                .withCustomMetadata(custom);
        Handle handle = request.has("ledger")
                ? operation.makeAdv().withLedgerId(request.get("ledger").getAsLong()).execute().get()
                : operation.execute().get();
        written.put(handle.getId(), new Written(handle));
        JsonObject answer = new JsonObject();
        answer.addProperty("ledger", handle.getId());
        return answer;
    }

    /** Adds "count" entries with up to "window" of them in flight. The answer comes after the last acknowledgement or failure. */
    private JsonElement add(JsonObject request) throws Exception {
        long ledger = ledger(request);
        int count = request.get("count").getAsInt();
        int window = request.get("window").getAsInt();
        Written to = written.get(ledger);
        Semaphore room = new Semaphore(window);
        AtomicReference<Throwable> failure = new AtomicReference<>();
        synchronized (to) {
            for (int i = 0; i < count && failure.get() == null; i++) {
                room.acquire();
                to.append(content(request, to.next)).whenComplete((entry, failed) -> {
                    if (failed == null) {
                        acknowledged(ledger, entry);
                    } else {
                        failure.compareAndSet(null, failed);
                    }
                    room.release();
                });
            }
        }
        room.acquire(window);
        if (failure.get() != null) {
            throw new ExecutionException(failure.get());
        }
        return new JsonObject();
    }

    private void acknowledged(long ledger, long entry) {
        JsonObject event = new JsonObject();
        event.addProperty("ledger", ledger);
        event.addProperty("acknowledged", entry);
        send(event);
    }

    /** What an entry holds: the SHA-256 of "seed:entry" again and again; its first bytes also choose the size. */
    private static byte[] content(JsonObject request, long entry) throws Exception {
        String name = request.get("seed").getAsLong() + ":" + entry;
        byte[] digest = MessageDigest.getInstance("SHA-256").digest(utf8(name));
        int smallest = request.get("smallest").getAsInt();
        int sizes = request.get("largest").getAsInt() - smallest + 1;
        byte[] content = new byte[smallest + Integer.remainderUnsigned(ByteBuffer.wrap(digest).getInt(), sizes)];
        for (int i = 0; i < content.length; i++) {
            content[i] = digest[i % digest.length];
        }
        return content;
    }

    private JsonElement close(JsonObject request) throws Exception {
        Handle handle = written.remove(ledger(request)).handle;
        handle.close();
        return described(handle.getLedgerMetadata());
    }

    private JsonElement delete(JsonObject request) throws Exception {
        client(request).newDeleteLedgerOp().withLedgerId(ledger(request)).execute().get();
        return new JsonObject();
    }

    // Reading and closing

    private ReadHandle opened(JsonObject request) throws Exception {
        return client(request).newOpenLedgerOp()
                .withLedgerId(ledger(request))
                .withRecovery(request.has("recovery") && request.get("recovery").getAsBoolean())
                .withDigestType(digest(request))
                .withPassword(password(request))
                .execute()
                .get();
    }

    private JsonElement open(JsonObject request) throws Exception {
        try (ReadHandle handle = opened(request)) {
            JsonObject answer = described(handle.getLedgerMetadata());
            answer.addProperty("last confirmed", handle.getLastAddConfirmed());
            return answer;
        }
    }

    /** Entries as [id, length of the ledger up to it, payload]; also those that nobody has confirmed yet. */
    private JsonElement read(JsonObject request) throws Exception {
        JsonArray answer = new JsonArray();
        try (ReadHandle handle = opened(request);
                LedgerEntries entries =
                        handle.readUnconfirmed(request.get("first").getAsLong(), request.get("last").getAsLong())) {
            for (LedgerEntry entry : entries) {
                JsonArray row = new JsonArray();
                row.add(entry.getEntryId());
                row.add(entry.getLength());
                row.add(base64(entry.getEntryBytes()));
                answer.add(row);
            }
        }
        return answer;
    }

    private LedgerMetadata metadata(JsonObject request) throws Exception {
        return client(request).getLedgerManager().readLedgerMetadata(ledger(request)).get().getValue();
    }

    private static JsonObject described(LedgerMetadata metadata) {
        JsonObject answer = new JsonObject();
        answer.addProperty("state", metadata.getState().name());
        answer.addProperty("last", metadata.getLastEntryId());
        answer.addProperty("length", metadata.getLength());
        answer.addProperty("ensemble", metadata.getEnsembleSize());
        answer.addProperty("write quorum", metadata.getWriteQuorumSize());
        answer.addProperty("ack quorum", metadata.getAckQuorumSize());
        answer.addProperty("format", metadata.getMetadataFormatVersion());
        answer.addProperty("digest", metadata.hasPassword() ? metadata.getDigestType().name() : null);
        answer.addProperty("created", metadata.getCtime());
        JsonObject custom = new JsonObject();
        metadata.getCustomMetadata().forEach((name, value) -> custom.addProperty(name, base64(value)));
        answer.add("custom", custom);
        JsonArray fragments = new JsonArray();
        metadata.getAllEnsembles().forEach((first, members) -> {
            JsonArray fragment = new JsonArray();
            fragment.add(first);
            JsonArray ids = new JsonArray();
            members.forEach(member -> ids.add(member.toString()));
            fragment.add(ids);
            fragments.add(fragment);
        });
        answer.add("fragments", fragments);
        return answer;
    }

    // Single bookies

    /** What one bookie answers for each entry from "first" to "last", without fencing: [error's name, stored bytes]. */
    private JsonElement ask(JsonObject request) throws Exception {
        List<Questions.Answer> answers = questions(request).ask(
                BookieId.parse(request.get("bookie").getAsString()),
                ledger(request),
                request.get("first").getAsLong(),
                request.get("last").getAsLong());
        JsonArray rows = new JsonArray();
        for (Questions.Answer answer : answers) {
            JsonArray row = new JsonArray();
            row.add(answer.error());
            row.add(answer.stored() == null ? null : base64(answer.stored()));
            rows.add(row);
        }
        return rows;
    }

    private JsonElement awaitBookie(JsonObject request) throws Exception {
        questions(request).await(BookieId.parse(request.get("bookie").getAsString()));
        return new JsonObject();
    }

    private synchronized Questions questions(JsonObject request) throws Exception {
        if (questions == null) {
            questions = new Questions(configuration(false, 3, QUESTION_SECONDS), client(request).getBookieAddressResolver());
        }
        return questions;
    }

    // Values

    private static long ledger(JsonObject request) {
        return request.get("ledger").getAsLong();
    }

    private static DigestType digest(JsonObject request) {
        return DigestType.valueOf(request.get("digest").getAsString());
    }

    private static byte[] password(JsonObject request) {
        return utf8(request.get("password").getAsString());
    }

    private static byte[] utf8(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    private static String base64(byte[] bytes) {
        return Base64.getEncoder().encodeToString(bytes);
    }
}
