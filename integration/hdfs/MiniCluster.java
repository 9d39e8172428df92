import java.io.File;
import java.net.URI;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hdfs.MiniDFSCluster;

/** HDFS in one process: a namenode and a datanode, whose files are in the folder that is the argument. */
public final class MiniCluster {
  public static void main(String[] arguments) throws Exception {
    Configuration configuration = new Configuration();
    // A machine's crash is not tested: edits need not reach its disk one by one.
    configuration.setBoolean("dfs.namenode.edits.noeditlogchannelflush", true);
    // A datanode asks whether a file's last block is known by now: first after so long, by default 400 ms.
    configuration.setInt("dfs.client.block.write.locateFollowingBlock.initial.delay.ms", 5);
    // So many names are told at once, by default 1,000.
    configuration.setInt("dfs.ls.limit", 20);
    MiniDFSCluster cluster =
        new MiniDFSCluster.Builder(configuration, new File(arguments[0])).numDataNodes(1).build();
    cluster.waitActive();
    int datanode = cluster.getDataNodes().get(0).getInfoPort();
    System.out.println("serves " + URI.create(cluster.getHttpUri(0)).getPort() + " " + datanode);
    Thread.currentThread().join();
  }
}
