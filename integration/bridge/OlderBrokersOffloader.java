import java.io.IOException;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Proxy;
import java.util.Map;
import org.apache.bookkeeper.common.util.OrderedScheduler;
import org.apache.bookkeeper.mledger.LedgerOffloader;
import org.apache.bookkeeper.mledger.LedgerOffloaderFactory;
import org.apache.bookkeeper.mledger.LedgerOffloaderStats;
import org.apache.bookkeeper.mledger.LedgerOffloaderStatsDisable;
import org.apache.bookkeeper.mledger.offload.jcloud.JCloudLedgerOffloaderFactory;
import org.apache.pulsar.common.policies.data.OffloadPoliciesImpl;

/**
 * The offloader of Pulsar 3.3 for a broker of 3.0, which is not to be had with an offloader of its own. All that it
 * reads and writes is theirs. Only `getOffloadPolicies` returns another class to one than to the other.
 */
public class OlderBrokersOffloader implements LedgerOffloaderFactory<LedgerOffloader> {
    private final JCloudLedgerOffloaderFactory factory = new JCloudLedgerOffloaderFactory();

    @Override
    public boolean isDriverSupported(String name) {
        return factory.isDriverSupported(name);
    }

    @Override
    public LedgerOffloader create(OffloadPoliciesImpl policies, Map<String, String> metadata, OrderedScheduler scheduler)
            throws IOException {
        return create(policies, metadata, scheduler, LedgerOffloaderStatsDisable.INSTANCE);
    }

    @Override
    public LedgerOffloader create(OffloadPoliciesImpl policies, Map<String, String> metadata,
            OrderedScheduler scheduler, LedgerOffloaderStats stats) throws IOException {
        LedgerOffloader theirs = factory.create(policies, metadata, scheduler, stats);
        Class<?>[] interfaces = {LedgerOffloader.class};
        return (LedgerOffloader) Proxy.newProxyInstance(getClass().getClassLoader(), interfaces,
                (proxy, method, arguments) -> {
                    if (method.getName().equals("getOffloadPolicies")) {
                        return policies;
                    }
                    try {
                        return method.invoke(theirs, arguments);
                    } catch (InvocationTargetException error) {
                        throw error.getCause();
                    }
                });
    }
}
