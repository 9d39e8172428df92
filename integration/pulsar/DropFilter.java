import org.apache.bookkeeper.mledger.Entry;
import org.apache.pulsar.broker.service.plugin.EntryFilter;
import org.apache.pulsar.broker.service.plugin.FilterContext;

/** An entry filter for tests: consumers do not get messages that have the property "drop". */
public final class DropFilter implements EntryFilter {
    @Override
    public FilterResult filterEntry(Entry entry, FilterContext context) {
        boolean dropped = context.getMsgMetadata().getPropertiesList().stream().anyMatch(property -> property.getKey().equals("drop"));
        return dropped ? FilterResult.REJECT : FilterResult.ACCEPT;
    }

    @Override
    public void close() {}
}
