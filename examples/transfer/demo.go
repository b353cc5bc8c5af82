package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/recipestest/embedded"
)

const (
	total  = 1000 // what alice has at first
	amount = 10   // what each transfer moves

	// timeout bounds what takes a session timeout at most, unless something is wrong.
	timeout = 30 * time.Second
)

// coordinatorTimeout is how long a transfer stays for a coordinator that is dead. A real ensemble
// grants four seconds at least, by default.
var coordinatorTimeout = time.Second

var errTooSlow = errors.New("timed out: is ZooKeeper running?")

// A demo has the two participants.
type demo struct {
	layout
	servers    string
	out        io.Writer
	began      time.Time
	client     *protocol.Client
	session    *protocol.Session
	alice, bob *account
}

// run shows everything. It leaves neither processes nor nodes behind, also when ctx ends.
func run(ctx context.Context, out io.Writer, o options) (err error) {
	d := &demo{servers: o.servers, out: out, began: time.Now(), alice: newAccount(total), bob: newAccount(0)}
	where := "on the ensemble " + o.servers
	if o.servers == "" {
		server, err := embedded.Start(embedded.Config{
			TickTime: coordinatorTimeout / 4, MaxSessionTimeout: timeout,
		})
		if err != nil {
			return err
		}
		defer server.Close()
		d.servers = server.ConnectString()
		where = "on a ZooKeeper inside this program, at " + d.servers
	}

	fmt.Fprintf(out, "Two-phase commit between two accounts, %s.\n\n", where)
	ctx, cancel := context.WithTimeoutCause(ctx, 5*timeout, errTooSlow)
	defer cancel()
	if d.client, err = protocol.Connect(ctx, d.servers); err != nil {
		return err
	}
	defer d.client.Close() // if the servers are slow to answer, its session ends by itself
	if d.session, err = d.client.Session(ctx); err != nil {
		return err
	}
	d.layout = layout{protocol.NewRecipe(d.client, "transfer", "/transfer-"+strings.ToLower(rand.Text()[:6]))}
	defer func() { err = errors.Join(err, d.remove(d.Path())) }()
	return d.show(ctx)
}

func (d *demo) show(ctx context.Context) error {
	stopAlice, stopBob := d.start(ctx, "alice", d.alice), d.start(ctx, "bob", d.bob)
	defer stopAlice()
	defer func() { stopBob() }()
	if err := d.await(ctx, "alice", "bob"); err != nil {
		return err
	}
	d.tell("alice and bob", "have", "")

	for fatal, ended := 1, false; !ended; fatal++ {
		var err error
		if ended, err = d.strike(ctx, fatal); err != nil {
			return err
		}
	}

	fmt.Fprintln(d.out)
	stopBob()
	if err := d.move(ctx, "while bob is away"); err != nil {
		return err
	}
	stopBob = d.start(ctx, "bob", d.bob)
	if err := d.await(ctx, "bob"); err != nil {
		return err
	}
	if err := d.settle(ctx); err != nil {
		return err
	}
	if err := d.move(ctx, "when bob is back"); err != nil {
		return err
	}

	// What is left of the last killed coordinators goes with their sessions.
	if err := d.session.WaitChildren(ctx, d.open(), isEmpty); err != nil {
		return err
	}
	if err := d.check(); err != nil {
		return err
	}
	fmt.Fprintln(d.out, "\nEach transfer happened to both accounts or to none, and nothing is left of any. Fin.")
	return nil
}

// start starts a participant. stop ends it.
func (d *demo) start(ctx context.Context, name string, a *account) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var serving sync.WaitGroup
	serving.Go(func() {
		err := newParticipant(d.client, d.Path(), name, a).serve(ctx)
		if err != nil && !errors.Is(err, context.Canceled) {
			fmt.Fprintln(d.out, err)
		}
	})
	return func() {
		cancel()
		serving.Wait()
	}
}

// await waits until these participants are there.
func (d *demo) await(ctx context.Context, names ...string) error {
	for _, name := range names {
		err := d.session.WaitChildren(ctx, d.participant(name), func(n []string) bool { return len(n) > 0 })
		if err != nil {
			return err
		}
	}
	return nil
}

// strike starts a coordinator that is killed at a packet. It reports whether the coordinator had
// ended before it came to that.
func (d *demo) strike(ctx context.Context, fatal int) (ended bool, err error) {
	self, err := os.Executable()
	if err != nil {
		return false, err
	}
	cmd := exec.CommandContext(ctx, self, "-servers", d.servers, "-path", d.Path(), "-fatal", fmt.Sprint(fatal),
		"-timeout", coordinatorTimeout.String())
	cmd.Stderr = os.Stderr
	said, err := cmd.Output()
	if err != nil && len(said) == 0 {
		return false, fmt.Errorf("coordinator: %w", err)
	}
	ended = bytes.HasPrefix(said, []byte(hasEnded))

	began := time.Now()
	err = d.settle(ctx)
	settled := fmt.Sprintf("settled after %v", time.Since(began).Round(100*time.Microsecond))
	d.tell("the coordinator", string(bytes.TrimSpace(said)), settled)
	return ended, err
}

// move coordinates a transfer.
func (d *demo) move(ctx context.Context, when string) error {
	committed, err := coordinate(ctx, d.client, d.Path(), transfer{From: "alice", To: "bob", Amount: amount})
	d.tell("a transfer", fmt.Sprintf("%s: committed is %t", when, committed), "")
	return err
}

// settle waits until both participants have completed the transfers that are there.
func (d *demo) settle(ctx context.Context) error {
	if err := d.session.Sync(ctx, d.open()); err != nil {
		return err
	}
	ids, _, err := d.session.Children(ctx, d.open())
	if err != nil && !errors.Is(err, zk.ErrNoNode) {
		return err
	}

	for _, id := range ids {
		err := d.session.WaitChildren(ctx, d.transfer(id), func(nodes []string) bool {
			return !slices.Contains(nodes, "alice") && !slices.Contains(nodes, "bob")
		})
		if err != nil {
			return err
		}
	}

	return nil
}

// check checks the accounts, which no transfer concerns any more.
func (d *demo) check() error {
	alice, more := d.alice.state()
	bob, less := d.bob.state()
	if alice+bob != total || more+less > 0 {
		return fmt.Errorf("alice has %d and bob %d, with %d changes prepared", alice, bob, more+less)
	}
	return nil
}

// remove deletes a node and all below it.
func (d *demo) remove(path string) error {
	ctx, cancel := context.WithTimeoutCause(context.Background(), timeout, errTooSlow)
	defer cancel()
	for {
		children, _, err := d.session.Children(ctx, path)
		for _, child := range children {
			if err := d.remove(path + "/" + child); err != nil {
				return err
			}
		}
		if err == nil {
			err = d.session.Delete(ctx, path, -1)
		}
		if errors.Is(err, zk.ErrNoNode) {
			return nil
		} else if !errors.Is(err, zk.ErrNotEmpty) {
			return err
		}
	}
}

// tell prints what an actor does, what the accounts have, and a remark.
func (d *demo) tell(who, what, more string) {
	alice, _ := d.alice.state()
	bob, _ := d.bob.state()
	text := fmt.Sprintf("  %6.3f s  %-15s  %-40s  alice %4d  bob %3d  %s",
		time.Since(d.began).Seconds(), who, what, alice, bob, more)
	fmt.Fprintln(d.out, strings.TrimRight(text, " "))
}
