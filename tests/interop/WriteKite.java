import java.io.File;
import java.util.Scanner;
import org.apache.avro.Schema;
import org.apache.avro.generic.GenericData;
import org.apache.avro.generic.GenericRecord;
import org.kitesdk.data.Dataset;
import org.kitesdk.data.DatasetDescriptor;
import org.kitesdk.data.DatasetWriter;
import org.kitesdk.data.Datasets;

/** Writes a dataset of Kite: URI, schema file with partitions, format, rows as JSON lines of Avro. */
public class WriteKite {
  public static void main(String[] args) throws Exception {
    DatasetDescriptor descriptor = new DatasetDescriptor.Builder()
        .schema(new File(args[1])).format(args[2]).property("owner", "kite").build();
    Dataset<GenericRecord> users = Datasets.create(args[0], descriptor, GenericRecord.class);
    Schema schema = descriptor.getSchema();
    DatasetWriter<GenericRecord> writer = users.newWriter();
    try (Scanner rows = new Scanner(new File(args[3]), "UTF-8")) {
      while (rows.hasNextLine()) {
        String[] cells = rows.nextLine().split("\t", -1);
        GenericRecord user = new GenericData.Record(schema);
        user.put("userId", Long.parseLong(cells[0]));
        user.put("username", cells[1]);
        user.put("seen", Long.parseLong(cells[2]));
        GenericRecord position = new GenericData.Record(schema.getField("position").schema());
        position.put("city", cells[3]);
        user.put("position", position);
        writer.write(user);
      }
    } finally {
      writer.close();
    }
    System.out.println(users.getDescriptor().getPartitionStrategy());
  }
}
