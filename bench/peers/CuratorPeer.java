import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.CyclicBarrier;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.barriers.DistributedDoubleBarrier;
import org.apache.curator.framework.recipes.leader.LeaderLatch;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.framework.recipes.queue.SimpleDistributedQueue;
import org.apache.curator.retry.RetryNTimes;

/** Apache Curator at the same work as the others. How it is told what to do is written in peers.go. */
public final class CuratorPeer {
    interface Command {
        Result run(String[] args) throws Exception;
    }

    interface Worker {
        long run(int worker) throws Exception;
    }

    interface Release {
        void run() throws Exception;
    }

    interface Contender {
        Release acquire(int contender) throws Exception;
    }

    static final class Result {
        final long ops;
        final long nanos;

        Result(long ops, long nanos) {
            this.ops = ops;
            this.nanos = nanos;
        }
    }

    static final byte[] payload = "0123456789".repeat(10).getBytes(StandardCharsets.UTF_8);
    static final Map<String, Command> commands = new HashMap<>();
    static final List<CuratorFramework> clients = new ArrayList<>();
    static String servers;
    static int sessionTimeout;

    static {
        commands.put("lock", a -> {
            InterProcessMutex mutex = new InterProcessMutex(client(0), a[0]);
            long deadline = deadline(a[1]);
            return timed(1, worker -> {
                long n = 0;
                for (; n == 0 || System.nanoTime() < deadline; n++) {
                    mutex.acquire();
                    mutex.release();
                }
                return n;
            });
        });
        commands.put("lockloop", a -> {
            open(Integer.parseInt(a[1]));
            long deadline = deadline(a[2]);
            return timed(Integer.parseInt(a[1]), worker -> {
                InterProcessMutex mutex = new InterProcessMutex(client(worker), a[0]);
                long n = 0;
                for (; n == 0 || System.nanoTime() < deadline; n++) {
                    mutex.acquire();
                    mutex.release();
                }
                return n;
            });
        });
        commands.put("lockline", a -> line(Integer.parseInt(a[1]), Integer.parseInt(a[2]), client -> {
            InterProcessMutex mutex = new InterProcessMutex(client(client), a[0]);
            mutex.acquire();
            return mutex::release;
        }));
        commands.put("electionline", a -> line(Integer.parseInt(a[1]), Integer.parseInt(a[2]), client -> {
            LeaderLatch latch = new LeaderLatch(client(client), a[0], new String(payload, StandardCharsets.UTF_8));
            latch.start();
            latch.await();
            return latch::close;
        }));
        commands.put("drain", a -> drain());
        commands.put("rwloop", a -> {
            open(Integer.parseInt(a[1]));
            long deadline = deadline(a[2]);
            return timed(Integer.parseInt(a[1]), worker -> {
                InterProcessReadWriteLock lock = new InterProcessReadWriteLock(client(worker), a[0]);
                long n = 0;
                for (; n == 0 || System.nanoTime() < deadline; n++) {
                    InterProcessMutex mutex = (n + worker) % 10 == 9 ? lock.writeLock() : lock.readLock();
                    mutex.acquire();
                    mutex.release();
                }
                return n;
            });
        });
        commands.put("offer", a -> {
            SimpleDistributedQueue queue = new SimpleDistributedQueue(client(0), a[0]);
            long deadline = deadline(a[2]);
            return timed(Integer.parseInt(a[1]), worker -> {
                long n = 0;
                for (; n == 0 || System.nanoTime() < deadline; n++) {
                    queue.offer(payload);
                }
                return n;
            });
        });
        commands.put("take", a -> {
            open(Integer.parseInt(a[1]));
            long deadline = deadline(a[2]);
            return timed(Integer.parseInt(a[1]), worker -> {
                SimpleDistributedQueue queue = new SimpleDistributedQueue(client(worker), a[0]);
                long n = 0;
                while ((n == 0 || System.nanoTime() < deadline) && queue.poll() != null) {
                    n++;
                }
                return n;
            });
        });
        commands.put("doublebarrier", a -> {
            int members = Integer.parseInt(a[1]);
            open(members);
            long deadline = deadline(a[2]);
            boolean[] over = new boolean[1];
            CyclicBarrier round = new CyclicBarrier(members, () -> over[0] = System.nanoTime() >= deadline);
            return timed(members, worker -> {
                long n = 0;
                for (; n == 0 || !over[0]; n++) {
                    // Another path each time: rounds on one path may disturb each other.
                    String path = a[0] + "/" + n % Integer.parseInt(a[3]);
                    DistributedDoubleBarrier barrier = new DistributedDoubleBarrier(client(worker), path, members);
                    barrier.enter();
                    barrier.leave();
                    round.await();
                }
                return n;
            });
        });
    }

    static long deadline(String millis) {
        return System.nanoTime() + Long.parseLong(millis) * 1_000_000;
    }

    static CuratorFramework client(int i) throws InterruptedException {
        synchronized (clients) {
            while (clients.size() <= i) {
                CuratorFramework client = CuratorFrameworkFactory.newClient(servers, sessionTimeout, 15_000, new RetryNTimes(3, 100));
                client.start();
                client.blockUntilConnected();
                clients.add(client);
            }
            return clients.get(i);
        }
    }

    static void open(int n) throws InterruptedException {
        client(n - 1);
    }

    static Result timed(int workers, Worker work) throws Exception {
        AtomicLong ops = new AtomicLong();
        AtomicReference<Exception> failed = new AtomicReference<>();
        Thread[] threads = new Thread[workers];
        long began = System.nanoTime();
        for (int i = 0; i < workers; i++) {
            int worker = i;
            threads[i] = new Thread(() -> {
                try {
                    ops.addAndGet(work.run(worker));
                } catch (Exception e) {
                    failed.set(e);
                }
            });
            threads[i].start();
        }
        for (Thread thread : threads) {
            do {
                thread.join(100);
                if (failed.get() != null) { // for which others may wait in vain
                    throw failed.get();
                }
            } while (thread.isAlive());
        }
        return new Result(ops.get(), System.nanoTime() - began);
    }

    static Release first;
    static CountDownLatch held;
    static List<Thread> threads;
    static final AtomicReference<Exception> lineFailed = new AtomicReference<>();

    /** One holds and the others wait in line; a lock is released by the thread that took it. */
    static Result line(int n, int sessions, Contender contender) throws Exception {
        open(sessions);
        first = contender.acquire(0);
        held = new CountDownLatch(n - 1);
        threads = new ArrayList<>();
        for (int i = 1; i < n; i++) {
            int session = i % sessions;
            Thread thread = new Thread(() -> {
                Release release = null;
                try {
                    release = contender.acquire(session);
                } catch (Exception e) {
                    lineFailed.set(e);
                }
                held.countDown();
                try {
                    if (release != null) {
                        release.run();
                    }
                } catch (Exception e) {
                    lineFailed.set(e);
                }
            });
            threads.add(thread);
            thread.start();
        }
        return new Result(0, 0);
    }

    static Result drain() throws Exception {
        long began = System.nanoTime();
        first.run();
        held.await();
        long nanos = System.nanoTime() - began;
        for (Thread thread : threads) {
            thread.join();
        }
        if (lineFailed.get() != null) {
            throw lineFailed.getAndSet(null);
        }
        return new Result(threads.size(), nanos);
    }

    public static void main(String[] args) throws Exception {
        servers = args[0];
        sessionTimeout = Integer.parseInt(args[1]);
        open(1);
        System.out.println("ready\t" + String.join(" ", commands.keySet()));

        BlockingQueue<String> lines = new LinkedBlockingQueue<>();
        new Thread(() -> read(lines)).start();
        while (true) {
            String[] words = lines.take().split("\t");
            String answer;
            try {
                Result result = commands.get(words[0]).run(Arrays.copyOfRange(words, 1, words.length));
                answer = "ok\t" + result.ops + "\t" + result.nanos;
            } catch (Throwable e) {
                answer = "err\t" + e;
            }
            System.out.println(answer.replace('\n', ' '));
        }
    }

    /** Ends the process with its standard input, whatever it is doing. */
    static void read(BlockingQueue<String> lines) {
        try {
            BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
            for (String line; (line = in.readLine()) != null; ) {
                lines.add(line);
            }
        } catch (IOException e) {
            // which is an end, too
        }
        Runtime.getRuntime().halt(0);
    }
}
