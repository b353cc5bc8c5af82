import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.CyclicBarrier;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.barriers.DistributedDoubleBarrier;
import org.apache.curator.framework.recipes.leader.LeaderLatch;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.framework.recipes.locks.Revoker;
import org.apache.curator.framework.recipes.nodes.GroupMember;
import org.apache.curator.framework.recipes.queue.SimpleDistributedQueue;
import org.apache.curator.framework.recipes.shared.SharedValue;
import org.apache.curator.retry.RetryNTimes;
import org.apache.zookeeper.Watcher.Event.KeeperState;
import org.apache.zookeeper.ZooKeeper;
import org.apache.zookeeper.recipes.lock.LockListener;
import org.apache.zookeeper.recipes.lock.WriteLock;

/**
 * Apache Curator, and ZooKeeper's own WriteLock, driven by lines on standard input. The protocol is
 * in interop/doc.go.
 */
public final class CuratorPeer {
    /** Runs on the handle's thread; what it returns is the answer. */
    interface Command {
        Object run(Handle handle, String[] args) throws Exception;
    }

    /** One contender: a thread, for Curator's locks belong to threads, and what it holds. */
    static final class Handle {
        final ExecutorService thread = Executors.newSingleThreadExecutor();
        final CountDownLatch revoked = new CountDownLatch(1);
        InterProcessMutex mutex;
        WriteLock writeLock;
        GroupMember member;
        SharedValue shared;
        LeaderLatch latch;
        Line line;
    }

    static final byte[] payload = "0123456789".repeat(10).getBytes(StandardCharsets.UTF_8);
    static final Map<String, Command> commands = new HashMap<>();
    static final Map<String, Handle> handles = new HashMap<>();
    static final List<CuratorFramework> clients = new ArrayList<>();
    static String servers;
    static int sessionTimeout;

    static {
        commands.put("lock", (h, args) -> {
            h.mutex = new InterProcessMutex(client(0), args[0]);
            h.mutex.acquire();
            return "";
        });
        commands.put("lockrevocable", (h, args) -> {
            h.mutex = new InterProcessMutex(client(0), args[0]);
            h.mutex.makeRevocable(lock -> h.revoked.countDown());
            h.mutex.acquire();
            return "";
        });
        commands.put("awaitrevoked", (h, args) -> {
            h.revoked.await();
            return "";
        });
        commands.put("revoke", (h, args) -> {
            Revoker.attemptRevoke(client(0), args[0] + "/" + args[1]);
            return "";
        });
        commands.put("trylock", (h, args) -> {
            h.mutex = new InterProcessMutex(client(0), args[0]);
            return h.mutex.acquire(0, TimeUnit.SECONDS);
        });
        commands.put("rlock", (h, args) -> {
            h.mutex = new InterProcessReadWriteLock(client(0), args[0]).readLock();
            h.mutex.acquire();
            return "";
        });
        commands.put("wlock", (h, args) -> {
            h.mutex = new InterProcessReadWriteLock(client(0), args[0]).writeLock();
            h.mutex.acquire();
            return "";
        });
        commands.put("writelock", (h, args) -> {
            CountDownLatch acquired = new CountDownLatch(1);
            h.writeLock = new WriteLock(session(), args[0], null, new LockListener() {
                @Override
                public void lockAcquired() {
                    acquired.countDown();
                }

                @Override
                public void lockReleased() {
                }
            });
            h.writeLock.lock();
            acquired.await();
            return "";
        });
        commands.put("unlock", (h, args) -> {
            if (h.writeLock == null) {
                h.mutex.release();
            } else {
                h.writeLock.unlock();
                h.writeLock.getZookeeper().close();
            }
            return "";
        });
        commands.put("offer", (h, args) ->
            new SimpleDistributedQueue(client(0), args[0]).offer(args[1].getBytes(StandardCharsets.UTF_8)));
        commands.put("poll", (h, args) -> {
            byte[] data = new SimpleDistributedQueue(client(0), args[0]).poll();
            return data == null ? "" : new String(data, StandardCharsets.UTF_8);
        });
        commands.put("share", (h, args) -> {
            h.shared = new SharedValue(client(0), args[0], new byte[0]);
            h.shared.start();
            return "";
        });
        commands.put("shared", (h, args) -> new String(h.shared.getValue(), StandardCharsets.UTF_8));
        commands.put("trysetshared", (h, args) ->
            h.shared.trySetValue(h.shared.getVersionedValue(), args[0].getBytes(StandardCharsets.UTF_8)));
        commands.put("unshare", (h, args) -> {
            h.shared.close();
            return "";
        });
        commands.put("join", (h, args) -> {
            h.member = new GroupMember(client(0), args[0], args[1], args[2].getBytes(StandardCharsets.UTF_8));
            h.member.start();
            return "";
        });
        commands.put("leave", (h, args) -> {
            h.member.close();
            return "";
        });
        commands.put("members", (h, args) -> {
            TreeSet<String> all = new TreeSet<>();
            h.member.getCurrentMembers().forEach((name, data) ->
                all.add(name + "=" + new String(data, StandardCharsets.UTF_8)));
            return String.join(" ", all);
        });
    }

    // The benchmark's.
    static {
        commands.put("lockloop", (h, args) -> {
            int sessions = open(args[1]);
            long deadline = deadline(args[2]);
            return timed(sessions, worker -> {
                InterProcessMutex mutex = new InterProcessMutex(client(worker), args[0]);
                long n = 0;
                for (; n == 0 || System.nanoTime() < deadline; n++) {
                    mutex.acquire();
                    mutex.release();
                }
                return n;
            });
        });
        commands.put("latch", (h, args) -> {
            h.latch = new LeaderLatch(client(0), args[0], args[1]);
            h.latch.start();
            h.latch.await();
            return "";
        });
        commands.put("unlatch", (h, args) -> {
            h.latch.close();
            return "";
        });
        commands.put("lockline", (h, args) -> {
            int sessions = open(args[2]);
            h.line = new Line(Integer.parseInt(args[1]), sessions, session -> {
                InterProcessMutex mutex = new InterProcessMutex(client(session), args[0]);
                mutex.acquire();
                return mutex::release;
            });
            return "0 0";
        });
        commands.put("electionline", (h, args) -> {
            int sessions = open(args[2]);
            h.line = new Line(Integer.parseInt(args[1]), sessions, session -> {
                LeaderLatch latch = new LeaderLatch(client(session), args[0], new String(payload, StandardCharsets.UTF_8));
                latch.start();
                latch.await();
                return latch::close;
            });
            return "0 0";
        });
        commands.put("drain", (h, args) -> h.line.drain());
        commands.put("rwloop", (h, args) -> {
            int sessions = open(args[1]);
            long deadline = deadline(args[2]);
            return timed(sessions, worker -> {
                InterProcessReadWriteLock lock = new InterProcessReadWriteLock(client(worker), args[0]);
                long n = 0;
                for (; n == 0 || System.nanoTime() < deadline; n++) {
                    InterProcessMutex mutex = (n + worker) % 10 == 9 ? lock.writeLock() : lock.readLock();
                    mutex.acquire();
                    mutex.release();
                }
                return n;
            });
        });
        commands.put("offerloop", (h, args) -> {
            SimpleDistributedQueue queue = new SimpleDistributedQueue(client(0), args[0]);
            long deadline = deadline(args[2]);
            return timed(Integer.parseInt(args[1]), worker -> {
                long n = 0;
                for (; n == 0 || System.nanoTime() < deadline; n++) {
                    queue.offer(payload);
                }
                return n;
            });
        });
        commands.put("takeloop", (h, args) -> {
            int sessions = open(args[1]);
            long deadline = deadline(args[2]);
            return timed(sessions, worker -> {
                SimpleDistributedQueue queue = new SimpleDistributedQueue(client(worker), args[0]);
                long n = 0;
                while ((n == 0 || System.nanoTime() < deadline) && queue.poll() != null) {
                    n++;
                }
                return n;
            });
        });
        commands.put("doublebarrier", (h, args) -> {
            int members = open(args[1]);
            int paths = Integer.parseInt(args[3]);
            long deadline = deadline(args[2]);
            boolean[] over = new boolean[1];
            CyclicBarrier round = new CyclicBarrier(members, () -> over[0] = System.nanoTime() >= deadline);
            return timed(members, worker -> {
                long n = 0;
                for (; n == 0 || !over[0]; n++) {
                    // Another path each time: rounds on one path may disturb each other.
                    String path = args[0] + "/" + n % paths;
                    DistributedDoubleBarrier barrier = new DistributedDoubleBarrier(client(worker), path, members);
                    barrier.enter();
                    barrier.leave();
                    round.await();
                }
                return n;
            });
        });
    }

    /** Returns the client of a session, and opens those that are missing up to it. */
    static CuratorFramework client(int i) throws InterruptedException {
        synchronized (clients) {
            while (clients.size() <= i) {
                CuratorFramework client =
                    CuratorFrameworkFactory.newClient(servers, sessionTimeout, 15_000, new RetryNTimes(100, 100));
                client.start();
                if (!client.blockUntilConnected(30, TimeUnit.SECONDS)) {
                    throw new IllegalStateException("no session at " + servers);
                }
                clients.add(client);
            }
            return clients.get(i);
        }
    }

    /** Opens a session of its own: two WriteLocks of one session would share a node. */
    static ZooKeeper session() throws Exception {
        CountDownLatch connected = new CountDownLatch(1);
        ZooKeeper session = new ZooKeeper(servers, sessionTimeout, event -> {
            if (event.getState() == KeeperState.SyncConnected) {
                connected.countDown();
            }
        });
        connected.await();
        return session;
    }

    /** Opens so many sessions, so that this is not measured. */
    static int open(String sessions) throws InterruptedException {
        int n = Integer.parseInt(sessions);
        client(n - 1);
        return n;
    }

    static long deadline(String millis) {
        return System.nanoTime() + Long.parseLong(millis) * 1_000_000;
    }

    interface Worker {
        /** Returns how often it did something. */
        long run(int worker) throws Exception;
    }

    /** Runs work in so many threads, and measures it. */
    static String timed(int workers, Worker work) throws Exception {
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
        return ops.get() + " " + (System.nanoTime() - began);
    }

    interface Release {
        void run() throws Exception;
    }

    interface Contender {
        Release acquire(int session) throws Exception;
    }

    /** One contender holds and the others wait. Each releases on the thread that acquired. */
    static final class Line {
        final Release first;
        final CountDownLatch waiting;
        final List<Thread> threads = new ArrayList<>();
        final AtomicReference<Exception> failed = new AtomicReference<>();

        Line(int n, int sessions, Contender contender) throws Exception {
            first = contender.acquire(0);
            waiting = new CountDownLatch(n - 1);
            for (int i = 1; i < n; i++) {
                int session = i % sessions;
                Thread thread = new Thread(() -> waitInLine(contender, session));
                threads.add(thread);
                thread.start();
            }
        }

        void waitInLine(Contender contender, int session) {
            Release release = null;
            try {
                release = contender.acquire(session);
            } catch (Exception e) {
                failed.set(e);
            }
            waiting.countDown();
            try {
                if (release != null) {
                    release.run();
                }
            } catch (Exception e) {
                failed.set(e);
            }
        }

        String drain() throws Exception {
            long began = System.nanoTime();
            first.run();
            waiting.await();
            long nanos = System.nanoTime() - began;
            for (Thread thread : threads) {
                thread.join();
            }
            if (failed.get() != null) {
                throw failed.get();
            }
            return threads.size() + " " + nanos;
        }
    }

    public static void main(String[] args) throws Exception {
        servers = args[0];
        sessionTimeout = Integer.parseInt(args[1]);
        client(0);
        System.out.println("ready\t" + String.join("\t", commands.keySet()));

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
        new ArrayList<>(clients).forEach(CuratorFramework::close);
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
