import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.framework.recipes.queue.SimpleDistributedQueue;
import org.apache.curator.retry.RetryNTimes;

/** Apache Curator, driven by lines on standard input. The protocol is told in interop/doc.go. */
public final class CuratorPeer {
    /** Runs on the handle's thread; what it returns is the answer. */
    interface Command {
        Object run(Handle handle, String[] args) throws Exception;
    }

    /** One contender: a thread, for Curator's locks belong to threads, and what it holds. */
    static final class Handle {
        final ExecutorService thread = Executors.newSingleThreadExecutor();
        InterProcessMutex mutex;
    }

    static final Map<String, Command> commands = new HashMap<>();
    static final Map<String, Handle> handles = new HashMap<>();
    static CuratorFramework client;

    static {
        commands.put("lock", (h, args) -> {
            h.mutex = new InterProcessMutex(client, args[0]);
            h.mutex.acquire();
            return "";
        });
        commands.put("trylock", (h, args) -> {
            h.mutex = new InterProcessMutex(client, args[0]);
            return h.mutex.acquire(0, TimeUnit.SECONDS);
        });
        commands.put("rlock", (h, args) -> {
            h.mutex = new InterProcessReadWriteLock(client, args[0]).readLock();
            h.mutex.acquire();
            return "";
        });
        commands.put("wlock", (h, args) -> {
            h.mutex = new InterProcessReadWriteLock(client, args[0]).writeLock();
            h.mutex.acquire();
            return "";
        });
        commands.put("unlock", (h, args) -> {
            h.mutex.release();
            return "";
        });
        commands.put("offer", (h, args) ->
            new SimpleDistributedQueue(client, args[0]).offer(args[1].getBytes(StandardCharsets.UTF_8)));
        commands.put("poll", (h, args) -> {
            byte[] data = new SimpleDistributedQueue(client, args[0]).poll();
            return data == null ? "" : new String(data, StandardCharsets.UTF_8);
        });
    }

    public static void main(String[] args) throws Exception {
        int sessionTimeout = Integer.parseInt(args[1]);
        client = CuratorFrameworkFactory.newClient(args[0], sessionTimeout, 15_000, new RetryNTimes(100, 100));
        client.start();
        if (!client.blockUntilConnected(30, TimeUnit.SECONDS)) {
            throw new IllegalStateException("no session at " + args[0]);
        }
        System.out.println("ready");

        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line; (line = in.readLine()) != null; ) {
            String[] words = line.split("\t");
            Command command = commands.getOrDefault(words[1], (h, a) -> {
                throw new IllegalArgumentException("no command " + words[1]);
            });
            Handle handle = handles.computeIfAbsent(words[2], id -> new Handle());
            String[] rest = Arrays.copyOfRange(words, 3, words.length);
            handle.thread.execute(() -> answer(words[0], command, handle, rest));
        }
        client.close();
        Runtime.getRuntime().halt(0); // threads may be blocked for ever
    }

    static void answer(String call, Command command, Handle handle, String[] args) {
        String answer;
        try {
            answer = "ok\t" + command.run(handle, args);
        } catch (Throwable e) {
            answer = "err\t" + e;
        }
        synchronized (System.out) {
            System.out.println(call + "\t" + answer.replace('\n', ' '));
        }
    }
}
