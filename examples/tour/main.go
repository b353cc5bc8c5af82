// Tour shows the recipes live, on a ZooKeeper inside the program:
//
//	go run ./examples/tour
//
// On an ensemble it works below its own path, which it removes in the end:
//
//	go run ./examples/tour -servers zk1:2181,zk2:2181,zk3:2181
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"iter"
	"log"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/zkrecipes/zkrecipes/doublebarrier"
	"github.com/zkrecipes/zkrecipes/election"
	"github.com/zkrecipes/zkrecipes/examples/internal/sandbox"
	"github.com/zkrecipes/zkrecipes/lock"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/queue"
	"github.com/zkrecipes/zkrecipes/rwlock"
)

func main() {
	servers := flag.String("servers", "", "`host:port,...` of an ensemble (default: a ZooKeeper inside this program)")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C kills
	if err := run(ctx, os.Stdout, *servers, 300*time.Millisecond); err != nil {
		log.Fatal("tour: ", err)
	}
}

// run shows all chapters. It leaves no nodes behind, even if ctx ends. A holder holds for pace.
func run(ctx context.Context, out io.Writer, servers string, pace time.Duration) (err error) {
	box, err := sandbox.Open(servers, "tour")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, box.Close()) }()

	fmt.Fprintf(out, "A tour of zkrecipes, %v.\n", box)
	for _, chapter := range []func(*tour){exclusiveLock, sharedLock, leaderElection, distributedQueue, doubleBarrier} {
		t := &tour{Sandbox: box, pace: pace, out: log.New(out, "", 0), began: time.Now()}
		if err := t.run(ctx, chapter); err != nil {
			return err
		}
	}

	return nil
}

// exclusiveLock shows lock.Mutex: workers line up, and one of them loses the lock while it works.
func exclusiveLock(t *tour) {
	t.say("\n1. The exclusive lock: five workers get it in order of arrival, and one loses it.\n\n")
	mutex := lock.New(t.guide, "/lock")
	workers := lineUp(t, 5, "worker", func(ctx context.Context, c *protocol.Client, name []byte) (*lock.Lease, error) {
		return lock.New(c, "/lock", lock.WithData(name)).Lock(ctx)
	}, mutex.Contenders, func(c lock.Contender) []byte { return c.Data })

	for i, w := range workers {
		w.holds("holds the lock", "")
		if i == 2 {
			w.loses("breaks the lock", mutex.Break)
		} else {
			w.does("gives it back", (*lock.Lease).Unlock)
		}
	}

	t.say("\n  Every token is greater than those before. So a store can refuse a late write of worker 3.")
}

// sharedLock shows rwlock.RWMutex: readers share the lock and a writer is alone. All wait in order.
func sharedLock(t *tour) {
	t.say("\n2. The shared lock: readers read together, a writer writes alone, and none starves.\n\n")
	mutex := rwlock.New(t.guide, "/rwlock")
	comes := func(name string, take func(*rwlock.RWMutex, context.Context) (*rwlock.Lease, error)) *actor[*rwlock.Lease] {
		return comes(t, name, func(ctx context.Context, c *protocol.Client, name []byte) (*rwlock.Lease, error) {
			return take(rwlock.New(c, "/rwlock", rwlock.WithData(name)), ctx)
		})
	}

	data := func(c rwlock.Contender) []byte { return c.Data }

	reader1 := comes("reader 1", (*rwlock.RWMutex).RLock)
	reader1.holds("reads", "")
	reader2 := comes("reader 2", (*rwlock.RWMutex).RLock)
	reader2.holds("reads", ", together with reader 1")
	writer1 := comes("writer 1", (*rwlock.RWMutex).Lock)
	waits(writer1, mutex.Contenders, data)
	reader3 := comes("reader 3", (*rwlock.RWMutex).RLock)
	waits(reader3, mutex.Contenders, data)
	writer2 := comes("writer 2", (*rwlock.RWMutex).Lock)
	waits(writer2, mutex.Contenders, data)

	// All have arrived. The line moves as its first contenders leave.
	reader1.does("gives it back", (*rwlock.Lease).Unlock)
	reader2.does("gives it back", (*rwlock.Lease).Unlock)
	writer1.holds("writes", ", alone")

	// No other writer comes between the write of writer 1 and its next read.
	writer1.does("downgrades", func(l *rwlock.Lease, ctx context.Context) (err error) {
		writer1.hold, err = l.Downgrade(ctx)
		return err
	})
	reader3.holds("reads", ", together with writer 1")
	writer1.does("gives it back", (*rwlock.Lease).Unlock)
	reader3.does("gives it back", (*rwlock.Lease).Unlock)
	writer2.holds("writes", ", alone")
	writer2.does("gives it back", (*rwlock.Lease).Unlock)
	t.say("\n  No writer came between what writer 1 wrote and what it read after that.")
}

// leaderElection shows election.Election: candidates lead one after the other, and an observer
// follows.
func leaderElection(t *tour) {
	t.say("\n3. Leader election: when a leader is lost or resigns, the next in line takes over.\n\n")
	e := election.New(t.guide, "/election")
	next, stop := iter.Pull2(e.Observe(t.ctx))
	defer stop()
	leads := func(c *actor[*election.Term]) {
		c.holds("leads", "")
		leader, err, ok := next()
		for ok && t.check(err) && string(leader.Value) != c.name {
			leader, err, ok = next()
		}
		t.tell("an observer", "sees", "that "+c.name+" leads")
	}

	candidates := lineUp(t, 3, "candidate", func(ctx context.Context, c *protocol.Client, name []byte) (*election.Term, error) {
		return election.New(c, "/election").Campaign(ctx, name)
	}, e.Candidates, func(c election.Candidate) []byte { return c.Value })

	leads(candidates[0])
	candidates[0].loses("deposes", e.Break)
	leads(candidates[1])
	candidates[1].does("resigns", (*election.Term).Resign)
	leads(candidates[2])
	candidates[2].does("resigns", (*election.Term).Resign)
	if leader, err, ok := next(); ok && t.check(err) && leader.Vacant() {
		t.tell("an observer", "sees", "that no candidate leads")
	}
}

// distributedQueue shows queue.Queue: if a worker crashes, another worker does its job.
func distributedQueue(t *tour) {
	t.say("\n4. The queue: a worker crashes before it acknowledges its job. Another one does it.\n\n")
	victim := t.connect()
	jobs, crashing := queue.New(t.guide, "/queue"), queue.New(victim, "/queue")

	ids, err := jobs.OfferAll(t.ctx, [][]byte{{'1'}, {'2'}, {'3'}, {'4'}, {'5'}, {'6'}})
	if t.check(err) {
		t.tell("a producer", "offers", ids[0]+" to "+ids[5])
	}

	if item, err := crashing.Reserve(t.ctx); t.check(err) {
		t.tell("worker 1", "reserves", fmt.Sprintf("job %s, attempt %d", item.Data(), item.Attempt()))
		victim.Close()
		t.tell("worker 1", "crashes", "its session ends, and its job is free again")
	}

	for range ids {
		if item, err := jobs.Reserve(t.ctx); t.check(err) {
			t.tell("worker 2", "does", fmt.Sprintf("job %s, attempt %d", item.Data(), item.Attempt()))
			t.check(item.Ack(t.ctx))
		}
	}

	t.say("\n  No job was lost, and none was acknowledged twice.")
}

// doubleBarrier shows doublebarrier.Barrier: members come one after the other, begin together and
// end together.
func doubleBarrier(t *tour) {
	t.say("\n5. The double barrier: three members begin together and end together.\n\n")
	var members sync.WaitGroup
	for i := range 3 {
		name, c := fmt.Sprintf("member %d", i+1), t.connect()
		members.Go(func() {
			t.tell(name, "comes", "")
			t.check(doublebarrier.New(c, "/double", 3).Do(t.ctx, func(context.Context, *doublebarrier.Entry) error {
				t.tell(name, "goes in", "")
				t.sleep(time.Duration(i+1) * t.pace / 2)
				t.tell(name, "is ready to go", "")
				return nil
			}))
			t.tell(name, "goes out", "")
		})
		t.sleep(t.pace / 2)
	}

	members.Wait()
}

// A tour is the script of a chapter. Its steps do nothing once ctx has ended, and the first step
// that fails ends ctx. So a chapter reads from top to bottom, and only run checks for the error.
type tour struct {
	*sandbox.Sandbox
	ctx  context.Context
	fail context.CancelCauseFunc
	pace time.Duration

	guide *protocol.Client // the client to look around with
	busy  sync.WaitGroup
	began time.Time
	freed time.Time // when the last holder left
	token int64     // of the last holder
	out   *log.Logger
}

// run shows the chapter and closes its clients.
func (t *tour) run(ctx context.Context, show func(*tour)) error {
	ctx, cancel := context.WithTimeoutCause(ctx, time.Minute, errors.New("timed out: is ZooKeeper running?"))
	defer cancel()
	t.ctx, t.fail = context.WithCancelCause(ctx)
	t.guide = t.connect()
	show(t)

	err := context.Cause(t.ctx)
	t.fail(nil)
	t.busy.Wait()
	return err
}

// check ends the chapter if err is not nil, and reports whether it goes on.
func (t *tour) check(err error) bool {
	if err != nil {
		t.fail(err)
	}
	return t.goesOn()
}

func (t *tour) goesOn() bool { return t.ctx.Err() == nil }

// connect returns a client that is closed at the end of the chapter.
func (t *tour) connect() *protocol.Client {
	// The tour itself reports losses. A client lasts until the chapter ends.
	c, err := protocol.Connect(t.ctx, t.Servers, protocol.WithLogger(slog.New(slog.DiscardHandler)))
	if t.check(err); err == nil {
		t.busy.Go(func() { <-t.ctx.Done(); c.Close() })
	}
	return c
}

// An actor contends in a session of its own.
type actor[H hold] struct {
	*tour
	name   string
	client *protocol.Client
	got    chan struct{} // closed when its wait has ended
	at     time.Time     // when that was
	hold   H
}

// A hold is a lease or a term.
type hold interface {
	Token() int64
	Node() string
	Done() <-chan struct{}
	Err() error
}

// comes has an actor wait until take returns.
func comes[H hold](t *tour, name string, take func(context.Context, *protocol.Client, []byte) (H, error)) *actor[H] {
	a := &actor[H]{tour: t, name: name, client: t.connect(), got: make(chan struct{})}
	t.busy.Go(func() {
		defer close(a.got)
		var err error
		a.hold, err = take(t.ctx, a.client, []byte(name))
		a.at = time.Now()
		t.check(err)
	})
	return a
}

// waits waits until the actor is at the end of the line, and says which contender is before it.
func waits[H hold, C any](a *actor[H], line func(context.Context) ([]C, error), name func(C) []byte) {
	for a.goesOn() {
		all, err := line(a.ctx)
		if n := len(all); a.check(err) && n > 0 && string(name(all[n-1])) == a.name {
			if n > 1 {
				a.tell(a.name, "waits in line", "behind "+string(name(all[n-2])))
			}
			return
		}
		a.sleep(5 * time.Millisecond)
	}
}

// lineUp has n actors come. The first actor holds at once. The others wait.
func lineUp[H hold, C any](t *tour, n int, kind string, take func(context.Context, *protocol.Client, []byte) (H, error),
	line func(context.Context) ([]C, error), name func(C) []byte) (all []*actor[H]) {
	for i := range n {
		all = append(all, comes(t, fmt.Sprintf("%s %d", kind, i+1), take))
		waits(all[i], line, name)
	}
	return all
}

// holds waits until the actor holds, and fails if it was granted too early.
func (a *actor[H]) holds(verb, more string) {
	if !await(a.tour, a.got) {
		return
	}

	token := a.hold.Token()
	if token <= a.token || a.at.Before(a.freed) {
		a.fail(fmt.Errorf("%s was granted token %d too early, after %d", a.name, token, a.token))
	}
	if more == "" && !a.freed.IsZero() {
		more = fmt.Sprintf(", %.1f ms later", a.at.Sub(a.freed).Seconds()*1000)
	}

	a.tour.token = token
	a.tell(a.name, verb, fmt.Sprintf("token %d%s", token, more))
}

// loses takes the actor's lock away: its session ends, or an operator deletes its node.
func (a *actor[H]) loses(operator string, delete func(ctx context.Context, node string) error) {
	if a.sleep(a.pace); !a.goesOn() {
		return
	}
	a.tour.freed = time.Now()
	if ended, err := a.Expire(a.ctx, a.client); ended {
		a.tell("ZooKeeper", "ends a session", "that of "+a.name+", as if it had crashed")
	} else if a.check(err) {
		a.tell("an operator", operator, "of "+a.name+", by deleting its node")
		a.check(delete(a.ctx, a.hold.Node()))
	}

	if await(a.tour, a.hold.Done()) {
		a.tell(a.name, "is told to stop", a.hold.Err().Error())
	}
}

// does prints an action of the actor and does it.
func (a *actor[H]) does(what string, do func(H, context.Context) error) {
	if a.sleep(a.pace); a.goesOn() {
		a.tell(a.name, what, "")
		a.tour.freed = time.Now()
		a.check(do(a.hold, a.ctx))
	}
}

// await waits for a signal and reports whether the chapter goes on.
func await[T any](t *tour, signal <-chan T) bool {
	select {
	case <-signal:
	case <-t.ctx.Done():
	}
	return t.goesOn()
}

func (t *tour) sleep(d time.Duration) { await(t, time.After(d)) }

// say prints a paragraph.
func (t *tour) say(text string) {
	if t.goesOn() {
		t.out.Print(text)
	}
}

// tell prints an actor's action, the time and a remark.
func (t *tour) tell(who, what, more string) {
	text := fmt.Sprintf("  %6.3f s  %-11s  %-15s  %s", time.Since(t.began).Seconds(), who, what, more)
	t.say(strings.TrimRight(text, " "))
}
