import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.nio.file.Files;
import java.security.MessageDigest;
import java.util.HexFormat;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import org.apache.bookkeeper.client.api.LedgerEntries;
import org.apache.bookkeeper.client.api.LedgerEntry;
import org.apache.bookkeeper.client.api.ReadHandle;
import org.apache.bookkeeper.mledger.LedgerOffloaderStats;
import org.apache.bookkeeper.mledger.offload.jcloud.impl.BlobStoreBackedReadHandleImpl;
import org.apache.bookkeeper.mledger.offload.jcloud.impl.DataBlockUtils;
import org.apache.bookkeeper.mledger.offload.jcloud.impl.OffsetsCache;
import org.jclouds.ContextBuilder;
import org.jclouds.blobstore.BlobStore;
import org.jclouds.blobstore.BlobStoreContext;

/**
 * Opens and reads ledgers of the objects in a folder, as a broker's offloader does. A line in, a line out:
 * "open LEDGER KEY" answers with the last entry and the length, "read FIRST LAST" with the SHA-256 of what came.
 * Each open begins with no offsets remembered.
 */
public class BridgedReader {
    private static final String CONTAINER = "objects";
    private final ScheduledExecutorService executor;
    private final BlobStore store;
    private final int bufferSize;
    private final long timeout;
    private ReadHandle handle;

    private BridgedReader(File folder, int bufferSize, long timeout) throws Exception {
        this.bufferSize = bufferSize;
        this.timeout = timeout;
        executor = Executors.newScheduledThreadPool(4, task -> {
            Thread thread = new Thread(task);
            thread.setDaemon(true);
            return thread;
        });
        store = ContextBuilder.newBuilder("transient").buildView(BlobStoreContext.class).getBlobStore();
        store.createContainerInLocation(null, CONTAINER);
        for (File file : folder.listFiles()) {
            byte[] data = Files.readAllBytes(file.toPath());
            store.putBlob(CONTAINER, store.blobBuilder(file.getName()).payload(data).contentLength(data.length)
                    .userMetadata(Map.of(DataBlockUtils.METADATA_FORMAT_VERSION_KEY.toLowerCase(), "1")).build());
        }
    }

    private String answer(String[] words) throws Exception {
        if (words[0].equals("open")) {
            long ledger = Long.parseLong(words[1]);
            handle = BlobStoreBackedReadHandleImpl.open(executor, store, CONTAINER, words[2], words[2] + "-index",
                    DataBlockUtils.VERSION_CHECK, ledger, bufferSize,
                    LedgerOffloaderStats.create(false, false, executor, 60), "public/default/persistent/t",
                    new OffsetsCache());
            return handle.getLastAddConfirmed() + " " + handle.getLength();
        }
        MessageDigest digest = MessageDigest.getInstance("SHA-256");
        try (LedgerEntries entries = handle.readAsync(Long.parseLong(words[1]), Long.parseLong(words[2]))
                .get(timeout, TimeUnit.MILLISECONDS)) {
            for (LedgerEntry entry : entries) {
                digest.update((entry.getEntryId() + " " + entry.getLength() + "\n").getBytes());
                digest.update(entry.getEntryBytes());
            }
        }
        return HexFormat.of().formatHex(digest.digest());
    }

    public static void main(String[] arguments) throws Exception {
        BridgedReader reader = new BridgedReader(
                new File(arguments[0]), Integer.parseInt(arguments[1]), Long.parseLong(arguments[2]));
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String answer;
            try {
                answer = "ok " + reader.answer(line.split(" "));
            } catch (TimeoutException error) {
                answer = "error no answer";
            } catch (ExecutionException error) {
                answer = "error " + error.getCause().toString().lines().findFirst().orElse("");
            } catch (Throwable error) {
                answer = "error " + error.toString().lines().findFirst().orElse("");
            }
            System.out.println(answer);
        }
        Runtime.getRuntime().halt(0);
    }
}
