package sim_test

import (
	"context"
	"errors"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
	"github.com/zkrecipes/zkrecipes/recipestest"
	"github.com/zkrecipes/zkrecipes/recipestest/sim"
)

// A fakeGrant is lost only if it has an error.
type fakeGrant struct {
	token int64
	err   error
}

func (g fakeGrant) Token() int64          { return g.token }
func (g fakeGrant) Err() error            { return g.err }
func (g fakeGrant) Done() <-chan struct{} { return nil }

// hold begins a turn after pause tenths of a second. The turn lasts for lasts tenths.
func hold(begin func(*sim.Client, time.Time, sim.Grant) *sim.Turn, c *sim.Client, token int64, pause, lasts int) {
	const tenth = 100 * time.Millisecond
	c.Go(func(ctx context.Context) error {
		called := time.Now()
		c.Sleep(ctx, time.Duration(pause)*tenth)
		turn := begin(c, called, fakeGrant{token: token})
		turn.Keep(time.Duration(lasts) * tenth)
		return turn.End(nil)
	})
}

func TestChecksFindEachKindOfError(t *testing.T) {
	exclusive := func(s *sim.Shared) func(*sim.Client, time.Time, sim.Grant) *sim.Turn {
		return func(c *sim.Client, called time.Time, g sim.Grant) *sim.Turn { return s.Begin(c, called, g, true) }
	}

	shared := func(s *sim.Shared) func(*sim.Client, time.Time, sim.Grant) *sim.Turn {
		return func(c *sim.Client, called time.Time, g sim.Grant) *sim.Turn { return s.Begin(c, called, g, false) }
	}

	uncertain := protocol.ErrUncertain
	for want, simulate := range map[string]func(*sim.World){
		"": func(w *sim.World) {
			e, s, c := w.Exclusive("it"), w.Shared("that"), w.Clients(3)
			p := w.Permits("those", 2)
			for i := range 3 {
				hold(p.Begin, c[i], int64(i+1), 1+5*i, 7)
			}
			hold(e.Begin, c[0], 1, 1, 5)
			hold(e.Begin, c[1], 2, 7, 5)
			hold(exclusive(s), c[0], 1, 1, 5)
			hold(shared(s), c[1], 2, 7, 5)
			hold(shared(s), c[2], 3, 8, 5)
			b := w.Bag("bag")
			b.Put(nil, "a", "b", "c")
			b.Put(uncertain, "d")
			b.Put(errors.New("no"), "e")
			b.Seen("a", "a")
			b.Out(nil, "a", "b")
			b.Out(uncertain, "c")
		},
		"it has two holders": func(w *sim.World) {
			e, c := w.Exclusive("it"), w.Clients(2)
			hold(e.Begin, c[0], 1, 1, 5)
			hold(e.Begin, c[1], 2, 3, 5)
		},
		"tokens that do not increase": func(w *sim.World) {
			e, c := w.Exclusive("it"), w.Clients(1)
			c[0].Go(func(ctx context.Context) error {
				for _, token := range []int64{2, 1} {
					turn := e.Begin(c[0], time.Now(), fakeGrant{token: token})
					turn.Keep(time.Second)
					turn.End(nil)
				}
				return nil
			})
		},
		"more than 2 hold it": func(w *sim.World) {
			p, c := w.Permits("it", 2), w.Clients(3)
			for i := range 3 {
				hold(p.Begin, c[i], int64(i+1), 1+i, 5)
			}
		},
		"is not held alone": func(w *sim.World) {
			s, c := w.Shared("it"), w.Clients(2)
			hold(shared(s), c[0], 1, 1, 5)
			hold(exclusive(s), c[1], 2, 3, 5)
		},
		"is not granted in order": func(w *sim.World) {
			s, c := w.Shared("it"), w.Clients(2)
			hold(shared(s), c[0], 2, 1, 5)
			hold(exclusive(s), c[1], 1, 7, 5)
		},
		"b has vanished": func(w *sim.World) {
			b := w.Bag("bag")
			b.Put(nil, "a", "b")
			b.Out(nil, "a")
		},
		"a came out 2 times": func(w *sim.World) {
			b := w.Bag("bag")
			b.Put(uncertain, "a")
			b.Out(nil, "a")
			b.Out(nil, "a")
		},
		"a was never put in": func(w *sim.World) {
			b := w.Bag("bag")
			b.Put(errors.New("no"), "a")
			b.Seen("a")
		},
		"gate was passed while it was set": func(w *sim.World) {
			g, c := w.Gate("gate"), w.Clients(1)[0]
			c.Go(func(context.Context) error {
				g.Set(c, func() error { return nil })
				time.Sleep(time.Second)
				return g.Wait(c, func() error { return nil })
			})
		},
		"a member has left before the other": func(w *sim.World) {
			r, members := w.Rounds("it", 2), []string{"a", "b"}
			for i, c := range w.Clients(2) {
				c.Go(func(ctx context.Context) error {
					v := r.Enter(c, time.Now(), fakeGrant{token: 1}, members)
					v.Keep(time.Duration(1+i) * time.Second)
					return v.Leave(nil)
				})
			}
		},
		"two rounds overlap": func(w *sim.World) {
			r := w.Rounds("it", 1)
			for _, c := range w.Clients(2) {
				c.Go(func(ctx context.Context) error {
					v := r.Enter(c, time.Now(), fakeGrant{token: 1}, []string{c.Name})
					v.Keep(time.Second)
					return v.Leave(nil)
				})
			}
		},
		"client 1 is stuck": func(w *sim.World) {
			w.Clients(1)[0].Go(func(ctx context.Context) error {
				<-ctx.Done()
				return nil
			})
		},
		"client 1 panics: oops": func(w *sim.World) {
			w.Clients(1)[0].Go(func(context.Context) error { panic("oops") })
		},
		"goroutines are left: deadlock": func(w *sim.World) {
			go func() { select {} }()
		},
		"1 watches are left": func(w *sim.World) {
			s, err := recipe.SessionOf(w.Context(), w.Operator())
			require.NoError(w, err)
			_, _, _, err = s.Conn().GetW("/")
			require.NoError(w, err)
		},
		"left behind": func(w *sim.World) {
			s, err := recipe.SessionOf(w.Context(), w.Operator())
			require.NoError(w, err)
			_, err = s.EnsurePath(w.Context(), w.Path)
			require.NoError(w, err)
			_, err = s.Conn().Create(w.Path+"/orphan", nil, zk.FlagEphemeral, zk.WorldACL(zk.PermAll))
			require.NoError(w, err)
		},
		"in the end, it ends: enough": func(w *sim.World) {
			w.Finally("it ends", func(context.Context) error { return errors.New("enough") })
		},
	} {
		t.Run(want, func(t *testing.T) {
			f := sim.Find(t, simulate, sim.WithFaults(), sim.WithSeeds(1))
			if want == "" {
				require.Nil(t, f)
				return
			}
			require.NotNil(t, f)
			require.ErrorContains(t, f.Err, want)
		})
	}
}

func TestFailureSaysHowToReplayIt(t *testing.T) {
	simulate := func(w *sim.World) {
		held := w.Exclusive("it")
		for i, c := range w.Clients(2) {
			hold(held.Begin, c, int64(i+1), 10+i, 500)
		}
	}

	f := sim.Find(t, simulate, sim.WithSeed(42), sim.WithFaults(sim.Stall, sim.Pause))
	require.NotNil(t, f)
	require.Contains(t, f.String(), "go test github.com/zkrecipes/zkrecipes/recipestest/sim -run '^TestFailureSaysHowToReplayIt$' -sim.seed=42 -sim.only='clients=1,2 faults='\n")
	require.NotEmpty(t, f.Faults)
	require.Empty(t, f.Enough)
	require.Contains(t, f.String(), "fails without faults")
	for _, fault := range f.Faults {
		require.Contains(t, f.String(), fault.String())
	}

	page, err := os.ReadFile(f.Timeline)
	require.NoError(t, err)
	require.Contains(t, string(page), "<svg")
	require.Contains(t, string(page), "token 2")
}

func TestSeedDecidesWhatHappens(t *testing.T) {
	t.Run("play", func(t *testing.T) {
		var plays [2][]sim.Fault
		var drawn [2][]time.Duration
		for i := range plays {
			t.Run("", func(t *testing.T) {
				f := sim.Find(t, func(w *sim.World) {
					for _, c := range w.Clients(3) {
						drawn[i] = append(drawn[i], c.Spell(), w.Upto(time.Hour), w.Timeout)
						c.Go(func(ctx context.Context) error {
							c.Sleep(ctx, 10*w.Timeout)
							return nil
						})
					}

					w.Check(func() error { return errors.New("enough") })
				}, sim.WithSeed(7), sim.WithoutFaults(sim.Expiry, sim.Deletion)) // their results have names in them

				plays[i] = f.Faults
			})
		}

		t.Cleanup(func() { // the two are parallel
			require.NotEmpty(t, plays[0])
			require.Equal(t, plays[0], plays[1])
			require.Equal(t, drawn[0], drawn[1])
		})
	})
}

// A client of go-zookeeper at a server that has lost its leader does not notice that its session is
// over.
func TestIsolatedServerAnswersPings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := recipestest.Start(t, recipestest.WithInMemory())
		link := srv.Link(t)
		const timeout = 2 * time.Second
		conn, _, err := zk.Connect([]string{srv.ConnectString()}, timeout, zk.WithDialer(link.Dial), zk.WithLogger(silence{}))
		require.NoError(t, err)
		defer conn.Close()
		_, err = conn.Create("/mine", nil, zk.FlagEphemeral, zk.WorldACL(zk.PermAll))
		require.NoError(t, err)
		link.Isolate()
		time.Sleep(3 * timeout)
		require.Equal(t, zk.StateHasSession, conn.State())
		s, err := srv.Client(t).Session(t.Context())
		require.NoError(t, err)
		there, _, err := s.Conn().Exists("/mine")
		require.NoError(t, err)
		require.False(t, there)
		link.Heal()
	})
}

// idle simulates clients that only look at the clock.
func idle(check func(c *sim.Client, longest time.Duration) error) func(*sim.World) {
	return func(w *sim.World) {
		for _, c := range w.Clients(2) {
			var longest time.Duration
			c.Go(func(ctx context.Context) error {
				for last := w.Now(); w.Now() < 10*w.Timeout; last = w.Now() {
					c.Sleep(ctx, w.Timeout/100)
					longest = max(longest, w.Now()-last)
				}
				return nil
			})
			w.Check(func() error {
				if longest > w.Timeout/50 {
					return errors.New("it stood still")
				}
				return check(c, longest)
			})
		}
	}
}

func TestOnlyPausesStopAProcess(t *testing.T) {
	sound := idle(func(*sim.Client, time.Duration) error { return nil })
	t.Run("pause", func(t *testing.T) {
		f := sim.Find(t, sound, sim.WithFaults(sim.Pause), sim.WithSeeds(20))
		require.NotNil(t, f)
		require.ErrorContains(t, f.Err, "it stood still")
		require.Len(t, f.Enough, 1)
	})

	t.Run("others", func(t *testing.T) {
		require.Nil(t, sim.Find(t, sound, sim.WithoutFaults(sim.Pause), sim.WithSeeds(20)))
	})
}

func TestSecondResumeTakesTheSessionOver(t *testing.T) {
	f := sim.Find(t, idle(func(c *sim.Client, _ time.Duration) error {
		if c.Link.Count(recipestest.OpConnect) > 1 {
			return errors.New("it came back")
		}
		return nil
	}), sim.WithFaults(sim.Resume), sim.WithSeeds(20))

	require.NotNil(t, f)
	require.ErrorContains(t, f.Err, "it came back")
}

func TestExamples(t *testing.T) {
	for name, simulation := range map[string]func(*testing.T){
		"exclusive": simWorkers, "permits": simImports, "shared": simCatalogue, "bag": simTasks, "gate": simMigration,
		"rounds": simPhases, "find": simFindsTwoHolders,
	} {
		t.Run(name, simulation)
	}
}
