import io.netty.buffer.ByteBufUtil;
import io.netty.buffer.UnpooledByteBufAllocator;
import io.netty.channel.nio.NioEventLoopGroup;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import org.apache.bookkeeper.client.BKException;
import org.apache.bookkeeper.common.util.OrderedExecutor;
import org.apache.bookkeeper.conf.ClientConfiguration;
import org.apache.bookkeeper.net.BookieId;
import org.apache.bookkeeper.proto.BookieAddressResolver;
import org.apache.bookkeeper.proto.BookieClient;
import org.apache.bookkeeper.proto.BookieClientImpl;
import org.apache.bookkeeper.proto.BookieProtocol;
import org.apache.bookkeeper.stats.NullStatsLogger;

/** Asks single bookies what they have, past everything that the client above them makes of it. */
final class Questions {
    private static final Set<String> ASKED_AGAIN = Set.of("BKBookieHandleNotAvailableException", "BKTimeoutException");
    private static final int HANGS_SECONDS = 200; // before who waits for the answer gives up

    private final BookieClient bookies;
    private final BookieAddressResolver resolver;

    Questions(ClientConfiguration configuration, BookieAddressResolver resolver) throws Exception {
        this.resolver = resolver;
        bookies = new BookieClientImpl(
                configuration,
                new NioEventLoopGroup(1),
                UnpooledByteBufAllocator.DEFAULT,
                OrderedExecutor.newBuilder().name("questions").numThreads(1).build(),
                Executors.newSingleThreadScheduledExecutor(),
                NullStatsLogger.INSTANCE,
                resolver);
    }

    /** Until the client has heard where a bookie listens. */
    void await(BookieId bookie) throws Exception {
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(HANGS_SECONDS);
        while (true) {
            try {
                resolver.resolve(bookie);
                return;
            } catch (BookieAddressResolver.BookieIdNotResolvedException unknown) {
                if (System.nanoTime() > deadline) {
                    throw unknown;
                }
                Thread.sleep(10);
            }
        }
    }

    /** One of them is null. */
    record Answer(String error, byte[] stored) {
        private boolean saysNothing() {
            return error != null && ASKED_AGAIN.contains(error);
        }
    }

    /** What a bookie answers for each entry from first to last; nothing is fenced. */
    List<Answer> ask(BookieId bookie, long ledger, long first, long last) throws Exception {
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(HANGS_SECONDS);
        List<Answer> answers = answers(bookie, ledger, first, last);
        // of a bookie that has just come back, the client may not have heard yet, and it may be slow
        while (answers.stream().anyMatch(Answer::saysNothing) && System.nanoTime() < deadline) {
            Thread.sleep(50);
            answers = answers(bookie, ledger, first, last);
        }
        return answers;
    }

    private List<Answer> answers(BookieId bookie, long ledger, long first, long last) throws Exception {
        List<CompletableFuture<Answer>> asked = new ArrayList<>();
        for (long entry = first; entry <= last; entry++) {
            CompletableFuture<Answer> answer = new CompletableFuture<>();
            asked.add(answer);
            bookies.readEntry(bookie, ledger, entry, (code, l, e, stored, context) -> {
                boolean found = code == BKException.Code.OK;
                String error = found ? null : BKException.create(code).getClass().getSimpleName();
                answer.complete(new Answer(error, found ? ByteBufUtil.getBytes(stored) : null));
            }, null, BookieProtocol.FLAG_NONE);
        }
        List<Answer> answers = new ArrayList<>();
        for (CompletableFuture<Answer> answer : asked) {
            answers.add(answer.get());
        }
        return answers;
    }
}
