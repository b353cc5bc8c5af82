package queue_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/queue"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

// A ledger knows what has become of each element, as the calls have reported. It is safe
// for concurrent use.
type ledger struct {
	mu                        sync.Mutex
	offered, maybeOffered     []string
	delivered, maybeDelivered []string // for good
	unknown                   []error
}

// offer offers elements one by one.
func (l *ledger) offer(ctx context.Context, q *queue.Queue, all ...string) {
	for _, data := range all {
		_, err := q.Offer(ctx, []byte(data))
		l.offeredAll(err, data)
	}
}

func (l *ledger) offeredAll(err error, all ...string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var u *queue.UncertainError
	switch {
	case err == nil:
		l.offered = append(l.offered, all...)
	case errors.As(err, &u) && errors.Is(err, protocol.ErrUncertain) && slices.Equal(texts(u.Data), all):
		l.maybeOffered = append(l.maybeOffered, all...)
	case gaveUp(err) && !errors.Is(err, protocol.ErrUncertain):
	default:
		l.unknown = append(l.unknown, err)
	}
}

func (l *ledger) took(data [][]byte, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var u *queue.UncertainError
	switch {
	case err == nil:
		l.delivered = append(l.delivered, texts(data)...)
	case errors.As(err, &u) && errors.Is(err, protocol.ErrUncertain) && slices.Equal(texts(u.Data), texts(data)):
		l.maybeDelivered = append(l.maybeDelivered, texts(data)...)
	case gaveUp(err), errors.Is(err, queue.ErrEmpty):
		if data != nil || errors.Is(err, protocol.ErrUncertain) {
			l.unknown = append(l.unknown, err)
		}
	default:
		l.unknown = append(l.unknown, err)
	}
}

// work reserves an item and acknowledges it.
func (l *ledger) work(ctx context.Context, q *queue.Queue, refuse bool) {
	it, err := q.Reserve(ctx)
	if err != nil {
		l.took(nil, err)
		return
	}
	if refuse {
		if err := it.Nack(ctx); err != nil && !errors.Is(err, protocol.ErrLost) && !gaveUp(err) {
			l.took(nil, err)
		}
		return
	}
	err = it.Ack(ctx)
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case err == nil:
		l.delivered = append(l.delivered, string(it.Data()))
	case errors.Is(err, protocol.ErrUncertain), gaveUp(err):
		l.maybeDelivered = append(l.maybeDelivered, string(it.Data()))
	case errors.Is(err, protocol.ErrLost):
	default:
		l.unknown = append(l.unknown, err)
	}
}

// check compares what was reported with what is left in the end.
func (l *ledger) check(left []string) error {
	count := func(all []string, data string) (n int) {
		for _, other := range all {
			if other == data {
				n++
			}
		}
		return n
	}
	errs := l.unknown
	complain := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	for _, data := range l.offered {
		n := count(l.delivered, data) + count(left, data)
		maybe := count(l.maybeDelivered, data)
		if n > 1 || n+maybe < 1 {
			complain("%s: %d times", data, n)
		}
	}
	for _, data := range l.maybeOffered {
		if n := count(l.delivered, data) + count(left, data); n > 1 {
			complain("%s, perhaps offered: %d times", data, n)
		}
	}
	for _, data := range slices.Concat(left, l.delivered, l.maybeDelivered) {
		if count(l.offered, data)+count(l.maybeOffered, data) != 1 {
			complain("%s was never offered", data)
		}
	}
	if len(errs) > 0 {
		complain("offered %v %v?, delivered %v %v?, left %v", l.offered, l.maybeOffered, l.delivered, l.maybeDelivered, left)
	}
	return errors.Join(errs...)
}

// The victim of each scenario meets every fault at each of its packets.
var scenarios = map[string]func(ctx context.Context, l *ledger, victim, other *queue.Queue){
	"offer": func(ctx context.Context, l *ledger, victim, _ *queue.Queue) {
		l.offer(ctx, victim, "a", "b", "c")
		_, err := victim.OfferAll(ctx, [][]byte{[]byte("d"), []byte("e")})
		l.offeredAll(err, "d", "e")
	},
	"offer to a fast consumer": func(ctx context.Context, l *ledger, victim, other *queue.Queue) {
		taken, stop := context.WithCancel(context.WithoutCancel(ctx))
		var wait sync.WaitGroup
		wait.Go(func() {
			for taken.Err() == nil {
				data, err := other.Take(taken)
				l.took(all(data), err)
			}
		})
		l.offer(ctx, victim, "a", "b", "c")
		stop()
		wait.Wait()
	},
	"take": func(ctx context.Context, l *ledger, victim, other *queue.Queue) {
		l.offer(context.WithoutCancel(ctx), other, "a", "b", "c", "d", "e")
		for range 2 {
			data, err := victim.Take(ctx)
			l.took(all(data), err)
		}
		l.took(victim.PollN(ctx, 2))
	},
	"wait and take": func(ctx context.Context, l *ledger, victim, other *queue.Queue) {
		var wait sync.WaitGroup
		wait.Go(func() {
			data, err := victim.Take(ctx)
			l.took(all(data), err)
		})
		l.offer(context.WithoutCancel(ctx), other, "a", "b")
		wait.Wait()
	},
	"race": func(ctx context.Context, l *ledger, victim, other *queue.Queue) {
		sound := context.WithoutCancel(ctx)
		many := numbered(0, 20)
		_, err := other.OfferAll(sound, many)
		l.offeredAll(err, texts(many)...)
		var wait sync.WaitGroup
		wait.Go(func() {
			for range 8 {
				data, err := other.Take(sound)
				l.took(all(data), err)
			}
		})
		for range 4 {
			data, err := victim.Take(ctx)
			l.took(all(data), err)
		}
		wait.Wait()
	},
	"reserve": func(ctx context.Context, l *ledger, victim, other *queue.Queue) {
		l.offer(context.WithoutCancel(ctx), other, "a", "b", "c")
		l.work(ctx, victim, true)
		l.work(ctx, victim, false)
		l.work(ctx, victim, false)
	},
}

func all(data []byte) [][]byte {
	if data == nil {
		return nil
	}
	return [][]byte{data}
}

func TestFaultAtEachStep(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		for name, scenario := range scenarios {
			for _, f := range suite.QuickFaults {
				t.Run(name+" "+f.Name, func(t *testing.T) {
					t.Parallel()
					root := srv.Root(t)
					suite.Sweep(t, func(step int) bool {
						return meet(t, srv, fmt.Sprintf("%s/%d", root, step), scenario, f, step)
					})
				})
			}
		}
	})
}

// Each scenario meets six of the faults, of all kinds. All of them together meet every fault.
func TestLongFaultAtEachStep(t *testing.T) {
	faults := suite.SlowFaults(10 * time.Second)
	for i, name := range slices.Sorted(maps.Keys(scenarios)) {
		scenario := scenarios[name]
		for j := range 6 {
			f := faults[(i+3*j)%len(faults)]
			t.Run(name+" "+f.Name, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					srv := recipestest.Start(t, recipestest.WithInMemory())
					root := srv.Root(t)
					suite.Sweep(t, func(step int) bool {
						return meet(t, srv, fmt.Sprintf("%s/%d", root, step), scenario, f, step)
					})
				})
			})
		}
	}
}

// The ctx of the victim's calls ends at each step.
func TestCancelledAtEachStep(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		for name, scenario := range scenarios {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				root := srv.Root(t)
				suite.Sweep(t, func(step int) bool {
					return meet(t, srv, fmt.Sprintf("%s/%d", root, step), scenario, suite.Fault{}, step)
				})
			})
		}
	})
}

type scenario = func(ctx context.Context, l *ledger, victim, other *queue.Queue)

// meet plays a scenario in which the fault comes at a step, or the victim's ctx ends if there is
// none.
func meet(t *testing.T, srv *recipestest.Server, path string, play scenario, f suite.Fault, step int) bool {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	link := srv.Link(t)
	victim, other := link.Client(t), srv.Client(t)
	lasting(t, other, path)

	session := suite.Session(t, victim).ID()
	disarm := suite.At(link, step, func() {
		if f.Do == nil {
			cancel()
		} else {
			f.Do(srv, link, session)
		}
	})
	var l ledger
	over := make(chan struct{})
	go func() {
		defer close(over)
		play(ctx, &l, queue.New(victim, path), queue.New(other, path))
	}()
	select {
	case <-over:
	case <-time.After(10 * time.Minute): // the test's own time limit comes first if time is real
		t.Fatal("never over")
	}
	met := disarm()
	link.Heal()
	link.LoseReply(recipestest.OpAny, 0)
	victim.Close() // which ends what goes on in the background, and claims
	final := queue.New(other, path)
	left := exhaust(t, final)
	require.NoError(t, l.check(left), "step %d", step)
	other.Close()
	return met
}

// A call that is cancelled while its request is on its way reports what may have happened, and
// nothing stays reserved.
func TestCancelledRequestsOnASlowNetwork(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		srv := recipestest.Start(t, recipestest.WithInMemory())
		other := srv.Client(t)
		path := lasting(t, other, srv.Root(t)+"/q")
		link := srv.Link(t)
		slow, q := queue.New(link.Client(t), path), queue.New(other, path)
		link.Delay(100 * time.Millisecond)
		var l ledger
		kinds := make(map[string]int)
		for i := range 64 {
			name := fmt.Sprint(i)
			l.offer(t.Context(), q, name)
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i/2%20)*50*time.Millisecond)
			if i%2 == 0 {
				data, err := slow.Take(ctx)
				l.took(all(data), err)
				kinds[fmt.Sprint("take ", err == nil, errors.Is(err, protocol.ErrUncertain))]++
			} else if it, err := slow.Reserve(ctx); err == nil {
				kinds["reserved"]++
				l.delivered = append(l.delivered, string(it.Data()))
				require.NoError(t, it.Ack(t.Context()))
			} else {
				kinds["gave up"]++
				require.ErrorIs(t, err, context.DeadlineExceeded)
				require.NotErrorIs(t, err, protocol.ErrUncertain)
			}
			cancel()
			time.Sleep(3 * time.Second) // what is under way comes to its end
		}
		require.NoError(t, l.check(drain(t, t.Context(), q)))
		n, err := q.Len(t.Context())
		require.NoError(t, err)
		require.Zero(t, n, "still reserved")
		for _, kind := range []string{"take true false", "take false true", "take false false", "reserved", "gave up"} {
			require.Positive(t, kinds[kind], kind)
		}
	})
}

// gaveUp reports whether an operation has ended with its ctx.
func gaveUp(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}
