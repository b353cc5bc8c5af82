// Redlock shows why a lock needs fencing tokens. A client holds a lock, and the clocks of servers
// leap. The next client is granted the lock and writes. Does the first client notice when it looks
// once more? Is its write refused if it doesn't look (because it pauses between its look and its
// write)? The lock is Redlock (redsync on five Redis servers), and then package lock on ZooKeeper:
//
//	go run -C examples/fencing ./redlock
//
// All servers run inside the program. README.md says what the outcome means.
package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"log/slog"
	"math"
	"net"
	"os"
	"slices"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	goredislib "github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/zkrecipes/zkrecipes/lock"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/recipestest/embedded"
)

func main() {
	if err := run(context.Background(), os.Stdout); err != nil {
		log.Fatal("redlock: ", err)
	}
}

const (
	expiry       = 2 * time.Second // of Redlock, and the session timeout of ZooKeeper
	redisServers = 5
)

// A service has the servers of one lock.
type service struct {
	name    string
	lock    func(context.Context) (holder, error) // by a client of its own
	leap    func()                                // sets clocks of servers forward, by more than expiry
	closers []func()                              // of clients and servers, in reverse order
}

// A holder is a client that was granted the lock.
type holder struct {
	holds func() bool // as far as it knows
	token int64       // 0 if the lock has none
}

func run(ctx context.Context, out io.Writer) error {
	for _, start := range []func() (*service, error){startRedlock, startZooKeeper} {
		s, err := start()
		if err != nil {
			return err
		}
		err = contend(ctx, out, s)
		for _, c := range slices.Backward(s.closers) {
			c()
		}
		if err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	return nil
}

func contend(ctx context.Context, out io.Writer, s *service) error {
	first, err := s.lock(ctx)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%s: the first client holds the lock: %t. Clocks leap.\n", s.name, first.holds())
	s.leap()
	second, err := s.lock(ctx)
	if err != nil {
		return err
	}
	time.Sleep(expiry / 8) // messages of servers have arrived by then

	var data store
	fmt.Fprintf(out, "  The second client holds the lock: %t. It writes: %s.\n", second.holds(), data.write(second.token))
	fmt.Fprintf(out, "  The first client looks once more, and holds the lock: %t.\n", first.holds())
	fmt.Fprintf(out, "  If it paused after its first look, it writes now: %s.\n", data.write(first.token))
	return nil
}

// A store is protected by the lock. It compares tokens, if the lock has any.
type store struct{ newest int64 }

func (s *store) write(token int64) string {
	if token < s.newest {
		return "refused, a greater token was seen"
	}
	s.newest = token
	return "done"
}

// startRedlock lets wall clocks leap on three of the five servers. Less than a majority has no
// effect.
func startRedlock() (*service, error) {
	var servers [redisServers]*miniredis.Miniredis
	var pools [redisServers]redis.Pool
	s := &service{name: "Redlock"}
	for i := range servers {
		server := miniredis.NewMiniRedis()
		server.ClockTTL(true) // keys expire as time passes
		client := goredislib.NewClient(&goredislib.Options{
			Addr:                     "127.0.0.1:6379", // no name to look up
			Dialer:                   func(context.Context, string, string) (net.Conn, error) { return server.Dial() },
			DisableIdentity:          true,
			MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
		})
		servers[i], pools[i] = server, goredis.NewPool(client)
		s.closers = append(s.closers, server.Close, func() { client.Close() })
	}

	s.lock = func(ctx context.Context) (holder, error) {
		m := redsync.New(pools[:]...).NewMutex("lock",
			redsync.WithExpiry(expiry), redsync.WithTries(math.MaxInt), redsync.WithRetryDelay(expiry/20))
		// A holder looks at the clock, as redsync advises.
		return holder{holds: func() bool { return time.Now().Before(m.Until()) }}, m.LockContext(ctx)
	}
	s.leap = func() {
		for _, server := range servers[:redisServers/2+1] {
			server.FastForward(time.Hour)
		}
	}
	return s, nil
}

// startZooKeeper ends all sessions, as a leader does when its (monotonic) clock leaps.
func startZooKeeper() (*service, error) {
	server, err := embedded.Start(embedded.Config{InMemory: true, TickTime: expiry / 4})
	if err != nil {
		return nil, err
	}
	var sessions []int64
	s := &service{name: "zkrecipes", closers: []func(){func() { server.Close() }}}

	s.lock = func(ctx context.Context) (holder, error) {
		c, err := protocol.Connect(ctx, server.ConnectString(), protocol.WithSessionTimeout(expiry),
			protocol.WithDialer(server.Dial), protocol.WithLogger(slog.New(slog.DiscardHandler)))
		if err != nil {
			return holder{}, err
		}
		s.closers = append(s.closers, func() { c.Close() })
		session, err := c.Session(ctx)
		if err != nil {
			return holder{}, err
		}
		sessions = append(sessions, session.ID())
		lease, err := lock.New(c, "/lock").Lock(ctx)
		if err != nil {
			return holder{}, err
		}
		return holder{func() bool { return lease.Err() == nil }, lease.Token()}, nil
	}
	s.leap = func() {
		for _, id := range sessions {
			server.ExpireSession(id)
		}
	}
	return s, nil
}
