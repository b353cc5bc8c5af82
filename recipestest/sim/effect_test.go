package sim

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/lock"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

// effectSeeds is how many seeds a kind of fault has to take effect.
const effectSeeds = 16

// effectOf reports for each kind of fault whether a world shows its effect.
var effectOf = map[Kind]func(*effects) bool{
	Cut:          connected(2),
	CutTwice:     func(e *effects) bool { return connected(3)(e) && e.outOfDate },
	Drop:         connected(2),
	Restart:      connected(2),
	Resume:       connected(2),
	Stall:        traced("is lost: stalled"),
	LostRequests: traced("->.*is lost: stalled"),
	LostReplies:  traced("<-.*is lost: stalled"),
	Isolation:    traced("is lost: no leader"),
	LoseReply:    traced("(?m)<-.*is lost$"),
	Refusal:      traced("is not executed"),
	TornRequest:  traced("->.*is torn"),
	TornReply:    traced("<-.*is torn"),
	Expiry:       func(e *effects) bool { return e.lost },
	Deletion:     func(e *effects) bool { return e.lost },
	Uproot:       func(e *effects) bool { return e.lost },
	Slow:         func(e *effects) bool { return e.slowest > 10*time.Millisecond },
	Pause:        func(e *effects) bool { return e.gap > e.w.Timeout/16 },
	Lag:          func(e *effects) bool { return e.outOfDate },
	Stale:        func(e *effects) bool { return e.outOfDate },
	Deposed:      func(e *effects) bool { return e.outOfDate },
	Reap:         func(e *effects) bool { return e.reaped },
	LateReports:  lived(func(e *effects, d time.Duration) bool { return d > e.w.Timeout+e.tick+e.w.Timeout/32 }),
	FastClock:    lived(func(e *effects, d time.Duration) bool { return d < e.w.Timeout }),
	Death: func(e *effects) bool {
		return slices.ContainsFunc(e.w.Alive(), func(c *Client) bool { return c.place.began > 1 })
	},
}

// connected returns the effect that a client has connected so many times at least.
func connected(times int) func(*effects) bool {
	return func(e *effects) bool {
		return slices.ContainsFunc(e.w.Alive(), func(c *Client) bool { return c.Link.Count(recipestest.OpConnect) >= times })
	}
}

// traced returns an effect that the trace of a client shows.
func traced(pattern string) func(*effects) bool {
	packet := regexp.MustCompile(pattern)
	return func(e *effects) bool {
		return slices.ContainsFunc(e.w.Alive(), func(c *Client) bool { return packet.MatchString(c.Link.Trace()) })
	}
}

// lived returns an effect that the length of a silent session shows.
func lived(shows func(*effects, time.Duration) bool) func(*effects) bool {
	return func(e *effects) bool {
		return slices.ContainsFunc(e.lived, func(d time.Duration) bool { return shows(e, d) })
	}
}

// Each kind of fault meets a holder, and has the effect that it is meant to have. Only some kinds
// let a client read what was overwritten before.
func TestEachKindOfFaultTakesEffect(t *testing.T) {
	for _, kind := range slices.Compact(slices.Sorted(slices.Values(allKinds))) {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			require.NotNil(t, effectOf[kind], "nothing says which effect it has")
			had, met := false, &coverage{}
			outOfDate := slices.Contains([]Kind{Lag, CutTwice, Stale, Deposed}, kind)
			for seed := range uint64(effectSeeds) {
				e := playEffects(t, seed+1, kind == LateReports || kind == FastClock, met, kind)
				require.True(t, outOfDate || !e.outOfDate)
				had = had || e.shown[kind]
				if had && met.kinds[kind] != nil && met.kinds[kind].met > 0 {
					return
				}
			}
			t.Fatalf("had an effect: %v%v", had, met)
		})
	}
}

// Without faults there are none of these effects.
func TestNoEffectHasAnotherCause(t *testing.T) {
	t.Parallel()
	require.Empty(t, playEffects(t, 1, false, &coverage{}).shown)
	e := playEffects(t, 1, true, &coverage{})
	require.NotEmpty(t, e.lived)
	require.NotContains(t, e.shown, LateReports)
	require.NotContains(t, e.shown, FastClock)
}

// playEffects plays a seed with faults of these kinds, and looks for their effects (for all effects
// if there are no faults). With silent the network of the only client stalls now and then.
func playEffects(t *testing.T, seed uint64, silent bool, met *coverage, kinds ...Kind) (e *effects) {
	f := playSeed(t, seed, func(w *World) {
		e = &effects{w: w, kinds: kinds, shown: make(map[Kind]bool)}
		if len(kinds) == 0 {
			e.kinds = allKinds
		}
		e.simulate(silent)
		w.Check(func() error {
			e.look()
			return nil
		})
	}, options{kinds: kinds}, met)
	if f != nil {
		t.Fatal(f)
	}
	return e
}

// effects are what faults do to a world in which nothing else happens.
type effects struct {
	w     *World
	kinds []Kind        // whose effects are looked for
	tick  time.Duration // of the server, which rounds up when sessions end

	mu        sync.Mutex // protects what follows
	clock     int        // which an operator counts up
	slowest   time.Duration
	gap       time.Duration   // the longest sleep
	outOfDate bool            // a client has read what the operator had overwritten before
	reaped    bool            // the directory of the lock was gone
	lost      bool            // a turn was lost
	lived     []time.Duration // sessions of which nothing was heard any more
	shown     map[Kind]bool   // which of effectOf
}

func (e *effects) note(what func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	what()
}

// look looks for effects. Traces have only the latest packets.
func (e *effects) look() {
	e.note(func() {
		for _, kind := range e.kinds {
			if effectOf[kind](e) {
				e.shown[kind] = true
			}
		}
	})
}

// simulate has clients contend for a lock and read a clock, which an operator sets.
func (e *effects) simulate(silent bool) {
	w := e.w
	operator := suite.Got(recipe.SessionOf(w.Context(), w.Operator()))(w)
	suite.Got(operator.EnsurePath(w.Context(), w.Path+"-clock"))(w)
	conn := suite.Got(w.Server.Dial("tcp", "", time.Second))(w)
	_, tick, _ := strings.Cut(ask(conn, "conf"), "tickTime=")
	suite.Got(fmt.Sscan(tick, &e.tick))(w)
	e.tick *= time.Millisecond

	held := w.Exclusive("the lock")
	clients := 2
	if silent {
		clients = 1
	}
	w.Processes(clients, func(c *Client) {
		m := lock.New(c.Client, w.Path)
		c.Go(func(ctx context.Context) error { return e.contend(ctx, c, m, held) })
		c.Go(func(ctx context.Context) error { return e.readClock(ctx, c) })
		if silent {
			c.Go(func(ctx context.Context) error { return e.fallSilent(ctx, operator.Conn(), c) })
		}
	})
	go e.setClock(operator.Conn())
}

func (e *effects) contend(ctx context.Context, c *Client, m *lock.Mutex, held *Exclusive) error {
	for range 2 {
		called := time.Now()
		l, err := m.Lock(ctx)
		if err != nil {
			return err
		}

		turn := held.Begin(c, called, l)
		turn.Keep(e.w.Timeout)
		err = turn.End(l.Unlock(ctx))
		e.note(func() { e.lost = e.lost || turn.lost })
		if err != nil {
			return err
		}
		c.Sleep(ctx, e.w.Timeout/16)
	}
	return nil
}

func (e *effects) setClock(operator *zk.Conn) {
	there := false
	for n := 1; e.w.Context().Err() == nil; n++ {
		if _, err := operator.Set(e.w.Path+"-clock", []byte(strconv.Itoa(n)), -1); err == nil {
			e.note(func() { e.clock = n })
		}
		if now, _, err := operator.Exists(e.w.Path); err == nil {
			e.note(func() { e.reaped = e.reaped || there && !now })
			there = now
		}
		if n%16 == 0 {
			e.look()
		}
		sleep(e.w.Context(), e.w.Timeout/32)
	}
}

func (e *effects) readClock(ctx context.Context, c *Client) error {
	w := e.w
	for end := w.Now() + 6*w.Timeout; w.Now() < end && ctx.Err() == nil; {
		slept := time.Now()
		c.Sleep(ctx, w.Timeout/32)
		gap := time.Since(slept)
		s, err := c.Session(ctx)
		if err != nil {
			return err
		}

		var before int
		e.note(func() { before, e.gap = e.clock, max(e.gap, gap) })
		called := time.Now()
		data, _, err := s.Conn().Get(w.Path + "-clock")
		if err != nil {
			continue
		}
		n, _ := strconv.Atoi(string(data))
		e.note(func() {
			e.slowest = max(e.slowest, time.Since(called))
			e.outOfDate = e.outOfDate || n < before
		})
	}
	return nil
}

// fallSilent makes the network of c stall again and again, and measures how long its sessions live
// then. (A fault may end that before.)
func (e *effects) fallSilent(ctx context.Context, operator *zk.Conn, c *Client) error {
	node := e.w.Path + "-silent"
	for range 4 {
		c.Sleep(ctx, c.Upto(e.w.Timeout/2))
		s, err := recipe.SessionOf(ctx, c.Client)
		if err != nil {
			return err
		}
		if s.Create(ctx, node, nil, zk.FlagEphemeral) != nil || s.Err() != nil {
			continue
		}
		silent := time.Now()
		c.Link.Stall()
		for there := true; there && time.Since(silent) < 2*e.w.Timeout; {
			time.Sleep(e.w.Timeout / 64)
			if there, _, err = operator.Exists(node); err == nil && !there {
				e.note(func() { e.lived = append(e.lived, time.Since(silent)) })
			}
		}
		c.Link.Heal()
		operator.Delete(node, -1)
	}
	return nil
}
