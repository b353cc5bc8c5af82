package sim_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/election"
	"github.com/zkrecipes/zkrecipes/recipestest/sim"
)

// A store is what the replicas of a service write to. Its network is sound.
type store struct {
	fenced bool
	mu     sync.Mutex // protects what follows
	token  int64      // of the last write
	orders []int64    // the tokens of all writes
}

var errFenced = errors.New("a later leader has written")

func (s *store) write(token int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()

	if s.fenced && token < s.token {
		return errFenced
	}

	s.token = token
	s.orders = append(s.orders, token)
	return nil
}

// check returns an error if a leader has written after its successor.
func (s *store) check() error {
	s.mu.Lock()
	defer s.mu.Unlock()

	for i, token := range s.orders {
		if i > 0 && token < s.orders[i-1] {
			return fmt.Errorf("leader %d has written after leader %d", token, s.orders[i-1])
		}
	}

	return nil
}

// A deafTerm is a term whose leader never learns of its end.
type deafTerm struct{ *election.Term }

func (deafTerm) Err() error            { return nil }
func (deafTerm) Done() <-chan struct{} { return nil }

// A replica writes again and again while it leads.
type replica struct {
	client   *sim.Client
	store    *store
	outlives bool // the bug: it goes on when its term is over
}

func (r *replica) lead(ctx context.Context, t sim.Grant, turn *sim.Turn) {
	for range 10 {
		if !r.outlives && ctx.Err() != nil {
			return
		}
		r.client.Sleep(context.WithoutCancel(ctx), r.client.Upto(200*time.Millisecond)) // working
		if !r.outlives && t.Err() != nil {
			return
		}
		r.client.Awake() // the process may stand still before the write
		err := r.store.write(t.Token())
		r.client.Note("writes with token %d: %v", t.Token(), err)
		turn.Holds() // a leader whose write was refused must know by now
		if err != nil {
			return
		}
	}
}

// service simulates three replicas, each until it has led twice. A store that fences accepts no
// late write, whatever the leaders do, so the terms are checked besides.
func service(fenced, outlives, deaf bool) func(*sim.World) {
	return func(w *sim.World) {
		s := &store{fenced: fenced}
		w.Check(s.check)
		led := w.Exclusive("the leadership")
		for _, c := range w.Clients(3) {
			r := &replica{client: c, store: s, outlives: outlives}
			e := election.New(c.Client, w.Path)
			c.Go(func(ctx context.Context) error {
				terms, called := 0, time.Now()
				err := e.Run(ctx, []byte(c.Name), func(ctx context.Context, t *election.Term) error {
					var term sim.Grant = t
					if deaf {
						ctx, term = context.WithoutCancel(ctx), deafTerm{t}
					}
					turn := led.Begin(c, called, term)
					r.lead(ctx, term, turn)
					err := turn.End(t.Resign(context.WithoutCancel(ctx)))
					called = time.Now()
					if terms++; terms == 2 {
						return errors.Join(err, errLeft)
					}
					return err
				})

				if errors.Is(err, errLeft) {
					return nil
				}

				return err
			})
		}
	}
}

func TestSimServiceThatFencesItsWrites(t *testing.T) {
	sim.Run(t, service(true, false, false))
}

func TestSimFindsALeaderThatNeverLearnsOfItsEnd(t *testing.T) {
	f := sim.Find(t, service(true, false, true), sim.WithSeeds(1000), sim.WithFaults(sim.Stall))
	require.NotNil(t, f)
	require.ErrorContains(t, f.Err, "the leadership has")
}

func TestSimFindsALeaderThatWorksOn(t *testing.T) {
	f := sim.Find(t, service(false, true, false), sim.WithSeeds(1000))
	require.NotNil(t, f)
	require.ErrorContains(t, f.Err, "has written after leader")
	require.FileExists(t, f.Timeline)
	t.Log(f)
}
