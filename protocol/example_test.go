package protocol_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net"
	"os"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/lock"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
	"github.com/zkrecipes/zkrecipes/recipestest/embedded"
)

func serve() *embedded.Server {
	server, err := embedded.Start(embedded.Config{})
	if err != nil {
		log.Fatal(err)
	}
	return server
}

// connectTo connects to a server, which is an ensemble in production: "zk1:2181,zk2:2181,zk3:2181".
func connectTo(server *embedded.Server, options ...protocol.ConnectOption) *protocol.Client {
	client, err := protocol.Connect(context.Background(), server.ConnectString(), options...)
	if err != nil {
		log.Fatal(err)
	}
	return client
}

// A program connects once. A deadline shows early that no server can be reached.
func ExampleConnect() {
	server := serve() // in production, an ensemble
	defer server.Close()

	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	client, err := protocol.Connect(ctx, server.ConnectString(), // "zk1:2181,zk2:2181,zk3:2181"
		protocol.WithSessionTimeout(15*time.Second),
		protocol.WithLogger(slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))))
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	session, err := client.Session(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(client.State(), "with a session timeout of", session.Timeout())
	// Output:
	// connected with a session timeout of 15s
}

// A health check looks at State. A listener hears of each change.
func ExampleWithStateListener() {
	states := make(chan protocol.State, 10)
	listen := func(s protocol.State) {
		if s != protocol.Suspended { // the connection is gone, and nothing is lost yet
			states <- s
		}
	}
	ctx := context.Background()
	server := serve()
	defer server.Close()
	client := connectTo(server, protocol.WithStateListener(listen))
	defer client.Close()
	fmt.Println(<-states)

	session, err := client.Session(ctx)
	if err != nil {
		log.Fatal(err)
	}
	server.ExpireSession(session.ID()) // what was held is lost
	fmt.Println(<-states)
	fmt.Println(<-states, "in a new session")
	// Output:
	// connected
	// lost
	// connected in a new session
}

// A counter counts events. A real one feeds metrics.
type counter struct {
	mu     sync.Mutex
	events map[protocol.EventKind]int
	last   chan struct{}
}

func (c *counter) Observe(e protocol.Event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.events[e.Kind]++
	if e.Kind == protocol.EventReleased {
		fmt.Println(e.Recipe, e.Path, e.Kind)
		close(c.last)
	}
}

func ExampleWithObserver() {
	counter := &counter{events: make(map[protocol.EventKind]int), last: make(chan struct{})}
	ctx := context.Background()
	server := serve()
	defer server.Close()
	client := connectTo(server, protocol.WithObserver(counter))
	defer client.Close()

	err := lock.New(client, "/locks/report").Do(ctx, func(context.Context, *lock.Lease) error { return nil })
	if err != nil {
		log.Fatal(err)
	}
	<-counter.last // events are reported in the background
	fmt.Println("acquired:", counter.events[protocol.EventAcquired])
	// Output:
	// lock /locks/report released
	// acquired: 1
}

// A job that must fail soon has a back-off that ends.
func ExampleWithBackOff() {
	ctx := context.Background()
	server := serve()
	defer server.Close()
	client := connectTo(server)
	defer client.Close()

	hasty := client.With(protocol.WithBackOff(func() backoff.BackOff {
		return backoff.WithMaxRetries(backoff.NewConstantBackOff(50*time.Millisecond), 3)
	}))
	lease, err := lock.New(hasty, "/locks/cache").Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("locked:", lease.Err() == nil)
	if err := lease.Unlock(ctx); err != nil {
		log.Fatal(err)
	}
	// Output:
	// locked: true
}

// Own nodes beside those of the recipes: the methods of a session repeat what may be repeated, and
// find out what has become of the rest.
func ExampleClient_Session() {
	ctx := context.Background()
	server := serve()
	defer server.Close()
	client := connectTo(server)
	defer client.Close()

	session, err := recipe.SessionOf(ctx, client)
	if err != nil {
		log.Fatal(err)
	}
	if _, err := session.EnsurePath(ctx, "/config"); err != nil {
		log.Fatal(err)
	}
	if _, err := session.Set(ctx, "/config", []byte("verbose"), -1); err != nil {
		log.Fatal(err)
	}
	data, _, err := session.Get(ctx, "/config")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s\n", data)
	// Output:
	// verbose
}

// With a credential, new nodes are for that identity alone. Through this view others may see who
// holds and who waits, and change nothing.
func ExampleWithACL() {
	readable := protocol.WithACL(append(zk.DigestACL(zk.PermAll, "billing", "secret"), zk.WorldACL(zk.PermRead)...))
	ctx := context.Background()
	server := serve()
	defer server.Close()
	client, other := connectTo(server, protocol.WithAuth("digest", []byte("billing:secret"))), connectTo(server)
	defer client.Close()
	defer other.Close()

	leases, err := lock.LockAll(ctx, lock.New(client, "/hidden"), lock.New(client.With(readable), "/shown"))
	if err != nil {
		log.Fatal(err)
	}
	defer leases.Unlock(ctx)

	_, err = lock.New(other, "/hidden").TryLock(ctx)
	fmt.Println(errors.Is(err, zk.ErrNoAuth))
	line, err := lock.New(other, "/shown").Contenders(ctx)
	fmt.Println(len(line), err)
	// Output:
	// true
	// 1 <nil>
}

// Several identities share the parent of their locks.
func ExampleWithACLFor() {
	shared := protocol.WithACLFor(func(path string) []zk.ACL {
		if path == "/locks" {
			return zk.WorldACL(zk.PermRead | zk.PermCreate)
		}
		return nil // the default
	})
	ctx := context.Background()
	server := serve()
	defer server.Close()
	client := connectTo(server, protocol.WithAuth("digest", []byte("billing:secret")), shared)
	defer client.Close()
	lease, err := lock.New(client, "/locks/billing").Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer lease.Unlock(ctx)

	other := connectTo(server, protocol.WithAuth("digest", []byte("mail:secret")), shared)
	defer other.Close()
	theirs, err := lock.New(other, "/locks/mail").Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer theirs.Unlock(ctx)
	fmt.Println("each has its own lock below one parent")
	// Output:
	// each has its own lock below one parent
}

// The node of a contender says where it runs, here with the name of a pod.
func ExampleWithOwnerData() {
	pod := protocol.Process{Host: "billing-7d4f", PID: os.Getpid(), Program: "billing"}
	ctx := context.Background()
	server := serve()
	defer server.Close()
	client := connectTo(server, protocol.WithOwnerData(pod.Data()))
	defer client.Close()

	mutex := lock.New(client, "/locks/report")
	lease, err := mutex.Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer lease.Unlock(ctx)
	line, err := mutex.Contenders(ctx)
	if err != nil {
		log.Fatal(err)
	}
	holder, ok := protocol.ParseProcess(line[0].Data)
	fmt.Println(holder.Host, ok)
	// Output:
	// billing-7d4f true
}

// A chroot that was mistyped is an error, instead of a lock that nobody else contends for.
func ExampleWithExistingChroot() {
	ctx := context.Background()
	server := serve() // in production, an ensemble
	defer server.Close()

	_, err := protocol.Connect(ctx, server.ConnectString()+"/prodution", protocol.WithExistingChroot())
	fmt.Println("there is none:", errors.Is(err, zk.ErrNoNode))
	// Output:
	// there is none: true
}

// The names of the servers are known to one name server alone, the certificates are checked with
// the CA of the system (see examples/tls for client certificates), and jute.maxbuffer is 4 MB.
func ExampleWithTLS() {
	resolver := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, "10.0.0.53:53")
	}}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	client, err := protocol.Connect(ctx, "zk1:2281,zk2:2281,zk3:2281",
		protocol.WithResolver(resolver), protocol.WithTLS(&tls.Config{}), protocol.WithRequestLimit(4<<20))
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
}

// Certificates from files, which are read again when they change.
func ExampleWithTLSFiles() {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	client, err := protocol.Connect(ctx, "zk1:2281,zk2:2281,zk3:2281", protocol.WithTLSFiles(protocol.TLSFiles{
		CA:          "/etc/zookeeper/ca.pem",
		Certificate: "/etc/billing/tls.crt",
		Key:         "/etc/billing/tls.key",
	}))
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
}
