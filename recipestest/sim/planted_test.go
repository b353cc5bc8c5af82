package sim_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/lock"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
	"github.com/zkrecipes/zkrecipes/recipestest/sim"
)

// Each program has a bug that must be found, or is correct and nothing may be found.
func TestSimFindsPlantedBugs(t *testing.T) {
	for name, test := range map[string]struct {
		simulate func(*sim.World)
		want     string // the failure; if it is empty there is none
		seeds    int    // if there are none, one seed is played without faults
		faults   sim.Option
	}{
		"zk.Lock without faults":       {contendForZKLock, "", 20, sim.WithFaults()},
		"zk.Lock":                      {contendForZKLock, ".", 3000, sim.WithoutFaults()},
		"zk.Lock, stall":               {contendForZKLock, ".", 3000, sim.WithFaults(sim.Stall)},
		"zk.Lock, isolation":           {contendForZKLock, ".", 3000, sim.WithFaults(sim.Isolation)},
		"zk.Lock, pause":               {contendForZKLock, "has two holders", 3000, sim.WithFaults(sim.Pause)},
		"zk.Lock, lost reply":          {contendForZKLock, ".", 3000, sim.WithFaults(sim.LoseReply)},
		"no fence below a hidden lock": {counting(false), "it is counted to", 200, sim.WithoutFaults()},
		"newest entry is taken":        {inLine(true), "this is no queue", 1000, withoutForce},
		"pause":                        {steady, "it stood still", 20, sim.WithFaults(sim.Pause)},
		"no pause":                     {steady, "", 20, sim.WithoutFaults(sim.Pause)},
		"arrivals":                     {simulate: arrivals("node 1")},
		"an arrival is overtaken":      {simulate: arrivals("node 2"), want: "node 1 was in line when node 2 came, which has overtaken it"},
		"empty between entries":        {simulate: emptyBetween(5)},
		"not empty between entries":    {simulate: emptyBetween(3), want: "this is no queue"},
		"nothing": {simulate: func(w *sim.World) {
			turns(w, w.Exclusive("it").Begin, turn{1, 1, 5}, turn{2, 7, 5})
			turns(w, w.Permits("those", 2).Begin, turn{1, 1, 7}, turn{2, 6, 7}, turn{3, 11, 7})
			readAndWrite(turn{2, 7, 5}, turn{1, 1, 5})(w)
			b := w.Bag("bag")
			b.Put(nil, "a", "b", "c")
			b.Put(protocol.ErrUncertain, "d")
			b.Put(errors.New("no"), "e")
			b.Seen("a", "a")
			b.Out(nil, "a", "b")
			b.Out(protocol.ErrUncertain, "c")
		}},
		"two holders":       {simulate: exclusive(turn{1, 1, 5}, turn{2, 3, 5}), want: "it has two holders"},
		"decreasing tokens": {simulate: exclusive(turn{2, 1, 5}, turn{1, 7, 5}), want: "tokens that do not increase"},
		"a token twice":     {simulate: exclusive(turn{1, 1, 5}, turn{1, 7, 5}), want: "tokens that do not increase"},
		"a token twice, as expected": {simulate: func(w *sim.World) {
			turns(w, w.Exclusive("it").Repeats().Begin, turn{1, 1, 5}, turn{1, 7, 5})
		}},
		"two holders of a token": {want: "it has two holders", simulate: func(w *sim.World) {
			turns(w, w.Exclusive("it").Repeats().Begin, turn{1, 1, 5}, turn{1, 3, 1})
		}},
		"three holders of two permits": {want: "more than 2 hold it", simulate: func(w *sim.World) {
			turns(w, w.Permits("it", 2).Begin, turn{1, 1, 5}, turn{2, 2, 5}, turn{3, 3, 5})
		}},
		"reader beside a writer":    {simulate: readAndWrite(turn{1, 1, 5}, turn{2, 3, 5}), want: "is not held alone"},
		"writer with a lower token": {simulate: readAndWrite(turn{2, 1, 5}, turn{1, 7, 5}), want: "is not granted in order"},
		"vanished": {want: "b has vanished", simulate: func(w *sim.World) {
			b := w.Bag("bag")
			b.Put(nil, "a", "b")
			b.Out(nil, "a")
		}},
		"twice": {want: "a came out 2 times", simulate: func(w *sim.World) {
			b := w.Bag("bag")
			b.Put(protocol.ErrUncertain, "a")
			b.Out(nil, "a")
			b.Out(nil, "a")
		}},
		"never put in": {want: "a was never put in", simulate: func(w *sim.World) {
			b := w.Bag("bag")
			b.Put(errors.New("no"), "a")
			b.Seen("a")
		}},
		"set gate":    {want: "gate was passed while it was set", simulate: passGate(time.Second)},
		"gate in use": {simulate: passGate(0)},
		"early member": {want: "a member has left before the other", simulate: func(w *sim.World) {
			r := w.Rounds("it", 2)
			for i, c := range w.Clients(2) {
				takePart(r, c, time.Duration(1+i)*time.Second, "a", "b")
			}
		}},
		"overlapping rounds": {want: "two rounds overlap", simulate: func(w *sim.World) {
			r := w.Rounds("it", 1)
			for _, c := range w.Clients(2) {
				takePart(r, c, time.Second, c.Name)
			}
		}},
		"stuck client": {want: "client 1 is stuck", simulate: func(w *sim.World) {
			w.Clients(1)[0].Go(func(ctx context.Context) error {
				<-ctx.Done()
				return nil
			})
		}},
		"panic": {want: "client 1 panics: oops", simulate: func(w *sim.World) {
			w.Clients(1)[0].Go(func(context.Context) error { panic("oops") })
		}},
		"goroutine": {want: "goroutines are left: deadlock", simulate: func(*sim.World) {
			go func() { select {} }()
		}},
		"watch": {want: "1 watches are left", simulate: func(w *sim.World) {
			_, _, _, err := operatorAt(w, w.Path).Conn().GetW("/")
			require.NoError(w, err)
		}},
		"ephemeral node": {want: "left behind", simulate: func(w *sim.World) {
			require.NoError(w, operatorAt(w, w.Path).Create(w.Context(), w.Path+"/orphan", nil, zk.FlagEphemeral))
		}},
		"failed end": {want: "in the end, it ends: enough", simulate: func(w *sim.World) {
			w.Finally("it ends", func(context.Context) error { return errors.New("enough") })
		}},
	} {
		t.Run(name, func(t *testing.T) {
			if test.seeds == 0 {
				test.seeds, test.faults = 1, sim.WithFaults()
			} else if test.want == "" && testing.Short() {
				test.seeds = 5
			}
			f := sim.Find(t, test.simulate, test.faults, sim.WithSeeds(test.seeds))
			if test.want == "" {
				require.Nil(t, f)
				return
			}
			require.NotNil(t, f)
			require.Regexp(t, test.want, f.Err.Error())
			t.Log(f)
		})
	}
}

// A fakeGrant is never lost.
type fakeGrant struct{ token int64 }

func (g fakeGrant) Token() int64          { return g.token }
func (g fakeGrant) Err() error            { return nil }
func (g fakeGrant) Done() <-chan struct{} { return nil }

type beginning = func(*sim.Client, time.Time, sim.Grant) *sim.Turn

func exclusive(all ...turn) func(*sim.World) {
	return func(w *sim.World) { turns(w, w.Exclusive("it").Begin, all...) }
}

// readAndWrite has one client that writes, and two others that read at the same time.
func readAndWrite(read, write turn) func(*sim.World) {
	return func(w *sim.World) {
		s := w.Shared("it")
		begin := func(exclusive bool) beginning {
			return func(c *sim.Client, called time.Time, g sim.Grant) *sim.Turn { return s.Begin(c, called, g, exclusive) }
		}
		turns(w, begin(false), read, read)
		turns(w, begin(true), write)
	}
}

// A turn begins some tenths of a second from now.
type turn struct{ token, pause, lasts int }

// turns lets a client take each turn.
func turns(w *sim.World, begin beginning, all ...turn) {
	const tenth = 100 * time.Millisecond
	for _, t := range all {
		c := w.Clients(1)[0]
		c.Go(func(ctx context.Context) error {
			c.Sleep(ctx, time.Duration(t.pause)*tenth)
			turn := begin(c, time.Now(), fakeGrant{token: int64(t.token)})
			turn.Keep(time.Duration(t.lasts) * tenth)
			return turn.End(nil)
		})
	}
}

func takePart(r *sim.Rounds, c *sim.Client, lasts time.Duration, members ...string) {
	c.Go(func(context.Context) error {
		v := r.Enter(c, time.Now(), fakeGrant{token: 1}, members)
		v.Keep(lasts)
		return v.Leave(nil)
	})
}

// passGate sets a gate in a call that takes some time, passes it after some time, and then removes
// it perhaps.
func passGate(after time.Duration) func(*sim.World) {
	return func(w *sim.World) {
		g, c := w.Gate("gate"), w.Clients(1)[0]
		c.Go(func(ctx context.Context) error {
			c.Go(func(context.Context) error {
				return g.Set(c, func() error { c.Sleep(ctx, time.Second/2); return nil })
			})
			c.Sleep(ctx, after)
			err := g.Wait(c, func() error { return nil })
			c.Sleep(ctx, time.Second)
			g.Remove(c, func() error { return errors.New("timeout") })
			return err
		})
	}
}

// A nodeGrant has a node.
type nodeGrant struct {
	fakeGrant
	node string
}

func (g nodeGrant) Node() string { return g.node }

// arrivals has the history of three nodes that come to a line one after another. The first to be
// granted is the one given, and then the others.
func arrivals(granted string) func(*sim.World) {
	return func(w *sim.World) {
		held, c := w.Exclusive("the lock"), w.Clients(1)[0]
		look := func(line ...string) {
			held.Listed(time.Now(), time.Now(), line...)
			c.Sleep(w.Context(), time.Millisecond)
		}
		c.Go(func(context.Context) error {
			called, line := time.Now(), []string{"node 1", "node 2", "node 3"}
			for i := range line {
				look(line[:i+1]...)
			}
			for token := int64(1); len(line) > 0; token++ {
				held.Begin(c, called, nodeGrant{fakeGrant{token}, granted}).End(nil)
				look(line...)
				line = slices.DeleteFunc(slices.Clone(line), func(node string) bool { return node == granted })
				look(line...)
				granted = append(line, "")[0]
			}
			return nil
		})
	}
}

// emptyBetween has the history of two entries, and of a Poll that finds nothing. Neither entry is
// there for all of that call.
func emptyBetween(offered time.Duration) func(*sim.World) {
	return func(w *sim.World) {
		d, began := newDeliveries(w), time.Now()
		during := func(from, to time.Duration) span { return span{began.Add(from), began.Add(to)} }
		add := func(name, id string, offered, taken span) {
			d.entries[name] = &delivery{
				name: name, ids: []string{id}, offered: offered,
				got: []span{taken}, touched: []*span{{taken.called, forever}},
			}
		}
		add("a", "0000000001", during(0, 1), during(4, 7))
		add("b", "0000000002", during(2, offered), during(8, 9))
		d.empties = []seenEmpty{{during(2, 6), "Poll"}}
		w.Check(func() error { return d.isQueue(0) })
	}
}

// steady has clients that only look at the clock.
func steady(w *sim.World) {
	for _, c := range w.Clients(2) {
		c.Go(func(ctx context.Context) error {
			for last := w.Now(); w.Now() < 10*w.Timeout; last = w.Now() {
				c.Sleep(ctx, w.Timeout/100)
				if w.Now()-last > w.Timeout/50 {
					return errors.New("it stood still")
				}
			}
			return nil
		})
	}
}

// contendForZKLock is contend for the lock of go-zookeeper. It has no contexts and leases, and its
// holder never learns of a loss.
func contendForZKLock(w *sim.World) {
	held := w.Exclusive("the lock")
	var tokens atomic.Int64 // the order of grants, counted by the holder
	for _, c := range w.Clients(3) {
		c.Go(func(ctx context.Context) error {
			conn, _, err := zk.Connect([]string{w.Server.ConnectString()}, w.Timeout, zk.WithDialer(c.Dial), zk.WithLogger(silence{}), zk.WithMaxConnBufferSize(1<<16), zk.WithMaxBufferSize(1<<16))
			if err != nil {
				return err
			}

			stop := context.AfterFunc(ctx, conn.Close) // otherwise it would wait for ever
			defer func() {
				if stop() {
					conn.Close()
				}
			}()

			l := zk.NewLock(conn, w.Path, zk.WorldACL(zk.PermAll))
			for range 1 + c.Rand.IntN(4) {
				c.Sleep(ctx, c.Upto(w.Timeout/2))
				called := time.Now()
				if err := l.Lock(); err != nil {
					continue // a broken network may make it fail
				}
				turn := held.Begin(c, called, fakeGrant{tokens.Add(1)})
				turn.Keep(c.Spell())
				turn.End(nil)
				l.Unlock()
			}

			return nil
		})
	}
}

type silence struct{}

func (silence) Printf(string, ...any) {}

// operatorAt returns the operator's session, with which it has made a directory.
func operatorAt(w *sim.World, path string) *recipe.Session {
	s, err := recipe.SessionOf(w.Context(), w.Operator())
	require.NoError(w, err)
	_, err = s.EnsurePath(w.Context(), path)
	require.NoError(w, err)
	return s
}

// counting has clients count a node up under a lock of which the simulation has no history. Unless
// the write is fenced, a client may write what it has read before it lost the lock.
func counting(fenced bool) func(*sim.World) {
	return func(w *sim.World) {
		path := w.Path + "-counter"
		operatorAt(w, path)
		var counted, unknown atomic.Int64
		for _, c := range w.Clients(3) {
			m := lock.New(c.Client, w.Path)
			c.Go(func(ctx context.Context) error {
				for range 5 {
					c.Sleep(ctx, c.Upto(w.Timeout))
					err := m.Do(ctx, func(held context.Context, l *lock.Lease) error { return countUp(held, w, c, l, path, fenced) })
					switch {
					case err == nil:
						counted.Add(1)
					case errors.Is(err, protocol.ErrUncertain):
						unknown.Add(1)
					}
				}
				return nil
			})
		}
		w.Finally("all is counted", func(context.Context) error {
			data, _, err := operatorAt(w, path).Conn().Get(path)
			if got, _ := strconv.ParseInt(string(data), 10, 64); err != nil || got < counted.Load() || got > counted.Load()+unknown.Load() {
				return fmt.Errorf("it is counted to %d, after %d calls and perhaps %d others: %w", got, counted.Load(), unknown.Load(), err)
			}
			return nil
		})
	}
}

func countUp(held context.Context, w *sim.World, c *sim.Client, l *lock.Lease, path string, fenced bool) error {
	s, err := c.Session(held)
	if err != nil {
		return err
	}
	data, _, err := s.Conn().Get(path)
	if err != nil {
		return err
	}
	c.Sleep(held, c.Upto(w.Timeout/50))
	if err := held.Err(); err != nil {
		return err
	}

	before, _ := strconv.Atoi(string(data))
	write := &zk.SetDataRequest{Path: path, Data: strconv.AppendInt(nil, int64(before+1), 10), Version: -1}
	if fenced {
		_, err := l.Multi(context.WithoutCancel(held), write)
		return err
	}
	for { // until it is written, perhaps in the client's next session
		if s, err = c.Session(context.WithoutCancel(held)); err != nil {
			return err
		}
		if _, err := s.Conn().Multi(write); err == nil {
			return nil
		}
		c.Sleep(held, w.Timeout/50)
	}
}

func TestSimCountsUnderAHiddenLock(t *testing.T) { sim.Run(t, counting(true)) }
