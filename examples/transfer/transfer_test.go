package main

import (
	"context"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/recipestest"
	"github.com/zkrecipes/zkrecipes/recipestest/ensemble"
)

func TestMain(m *testing.M) {
	if slices.Contains(os.Args, "-fatal") { // the test binary starts copies of itself
		main()
		os.Exit(0)
	}
	coordinatorTimeout = 6 * time.Second // only killed coordinators lose their session
	suite.Main(m)
}

// A stage has two participants, each behind a link of its own, and an onlooker.
type stage struct {
	layout
	t        *testing.T
	srv      *recipestest.Server
	session  *protocol.Session // the onlooker's
	accounts map[string]*account
	links    map[string]*recipestest.Link
	clients  map[string]*protocol.Client
	stop     map[string]func()
	poll     time.Duration // how often to look, where no signal tells
}

func newStage(t *testing.T, srv *recipestest.Server) *stage {
	onlooker := srv.Client(t)
	s := &stage{
		layout:  layout{protocol.NewRecipe(onlooker, "transfer", srv.Root(t)+"/accounts")},
		t:       t,
		srv:     srv,
		session: suite.Session(t, onlooker),
		accounts: map[string]*account{
			"alice": newAccount(total),
			"bob":   newAccount(0),
		},
		links:   make(map[string]*recipestest.Link),
		clients: make(map[string]*protocol.Client),
		stop:    make(map[string]func()),
		poll:    10 * time.Millisecond,
	}
	for name := range s.accounts {
		s.links[name] = srv.Link(t)
		s.clients[name] = s.links[name].Client(t)
		s.start(name)
	}
	s.arrive("alice", "bob")
	return s
}

// start makes a participant serve until stop is called.
func (s *stage) start(name string) {
	ctx, cancel := context.WithCancel(s.t.Context())
	p := newParticipant(s.clients[name], s.Path(), name, s.accounts[name])
	var serving sync.WaitGroup
	serving.Go(func() {
		err := p.serve(ctx)
		if ctx.Err() == nil {
			s.t.Errorf("%s has stopped serving: %v", name, err)
		}
	})
	s.stop[name] = sync.OnceFunc(func() {
		cancel()
		serving.Wait()
	})
	s.t.Cleanup(s.stop[name])
}

// arrive waits until participants are there.
func (s *stage) arrive(names ...string) {
	s.t.Helper()
	for _, name := range names {
		require.NoError(s.t, s.session.WaitChildren(suite.Lasting(s.t), s.participant(name), func(n []string) bool { return len(n) > 0 }))
	}
}

func (s *stage) move(amount int) (committed bool, err error) {
	return coordinate(s.t.Context(), s.srv.Client(s.t), s.Path(), transfer{From: "alice", To: "bob", Amount: amount})
}

// atRest reports whether a participant has completed all transfers.
func (s *stage) atRest(name string) bool {
	ctx := suite.Lasting(s.t)
	require.NoError(s.t, s.session.Sync(ctx, s.Path()))
	open, _, _ := s.session.Children(ctx, s.open())
	for _, id := range open {
		vote, err := s.session.Exists(ctx, s.vote(id, name))
		require.NoError(s.t, err)
		if vote != nil {
			return false
		}
	}
	_, prepared := s.accounts[name].state()
	return prepared == 0
}

// soon waits until a condition is met, until a moment at most.
func (s *stage) soon(deadline time.Time, what string, condition func() bool) {
	s.t.Helper()
	for !condition() {
		require.True(s.t, time.Now().Before(deadline), what)
		time.Sleep(s.poll)
	}
}

// check waits until all transfers are over and gone, and returns what bob has.
func (s *stage) check(deadline time.Time) int {
	s.t.Helper()
	for name := range s.accounts {
		s.soon(deadline, name+" has completed all transfers", func() bool { return s.atRest(name) })
	}
	s.soon(deadline, "nothing is left of the transfers", func() bool {
		open, _, _ := s.session.Children(suite.Lasting(s.t), s.open())
		return len(open) == 0
	})
	alice, _ := s.accounts["alice"].state()
	bob, _ := s.accounts["bob"].state()
	require.Equal(s.t, total, alice+bob)
	return bob
}

func TestTransferIsCommittedOrAborted(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		s := newStage(t, srv)
		for _, move := range []struct {
			amount    int
			committed bool
			bob       int
		}{{100, true, 100}, {901, false, 100}, {900, true, 1000}, {1, false, 1000}} {
			committed, err := s.move(move.amount)
			require.NoError(t, err)
			require.Equal(t, move.committed, committed)
			require.Equal(t, move.bob, s.check(time.Now().Add(suite.Limit)))
		}
	})
}

func TestTransferWithAParticipantThatIsAwayIsAborted(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		s := newStage(t, srv)
		s.stop["bob"]()
		require.NoError(t, s.session.WaitChildren(suite.Lasting(t), s.participant("bob"), isEmpty))
		committed, err := s.move(10)
		require.NoError(t, err)
		require.False(t, committed)
		s.soon(time.Now().Add(suite.Limit), "alice has completed it", func() bool { return s.atRest("alice") })
		require.False(t, s.atRest("bob"))

		s.start("bob")
		require.Zero(t, s.check(time.Now().Add(suite.Limit)))
		s.arrive("bob")
		committed, err = s.move(10)
		require.NoError(t, err)
		require.True(t, committed)
		require.Equal(t, 10, s.check(time.Now().Add(suite.Limit)))
	})
}

func TestTransferOnManyAccountsAtATime(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		s := newStage(t, srv)
		c := srv.Client(t)
		var wait suite.Group
		for i := range 20 {
			from, to := "alice", "bob"
			if i%2 == 1 {
				from, to = to, from
			}
			wait.Go(func() error {
				_, err := coordinate(t.Context(), c, s.Path(), transfer{From: from, To: to, Amount: 5})
				return err
			})
		}
		require.NoError(t, wait.Wait())
		s.check(time.Now().Add(suite.Limit))
	})
}

func TestBadTransferIsRefusedBeforeAnyIO(t *testing.T) {
	t.Parallel()
	srv := recipestest.Start(t)
	link := srv.Link(t)
	c := link.Client(t)
	before := link.Packets()
	for _, bad := range []transfer{{"a", "b", 0, ""}, {"a", "b", -1, ""}, {"a", "a", 1, ""}, {"a/x", "b", 1, ""}, {"", "b", 1, ""}} {
		_, err := coordinate(t.Context(), c, "/accounts", bad)
		require.ErrorContains(t, err, "transfer: /accounts: ")
	}
	require.Error(t, newParticipant(c, "/accounts", "", newAccount(0)).serve(t.Context()))
	require.Error(t, newParticipant(nil, "/accounts", "a", newAccount(0)).serve(t.Context()))
	require.Equal(t, before, link.Packets())
}

// A participant may leave after its vote, as the vote is its own and final.
func TestVoteOfAParticipantThatIsAwayStands(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		link := srv.Link(t)
		c := link.Client(t)
		l, s := layout{protocol.NewRecipe(c, "transfer", srv.Root(t)+"/accounts")}, suite.Session(t, c)
		vote := l.vote("x", "bob")
		_, err := s.EnsurePath(t.Context(), vote)
		require.NoError(t, err)
		_, err = s.Set(t.Context(), vote, []byte(commit), 0)
		require.NoError(t, err)

		// That there is a vote is heard of last.
		link.Fail(recipestest.OpGetData, vote, -4, 3)
		given, err := l.await(t.Context(), s, "x", "bob")
		require.NoError(t, err)
		require.Equal(t, commit, given)
	})
}

func TestForeignNodesAreIgnored(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		s := newStage(t, srv)
		_, err := s.session.EnsurePath(t.Context(), s.open()+"/README")
		require.NoError(t, err)
		committed, err := s.move(1)
		require.NoError(t, err)
		require.True(t, committed)
		require.NoError(t, s.session.Delete(t.Context(), s.open()+"/README", -1))
		require.Equal(t, 1, s.check(time.Now().Add(suite.Limit)))
	})
}

// A participant that comes back does again what it may have done before.
func TestAccountPreparesAndSettlesAChangeOnce(t *testing.T) {
	t.Parallel()
	for _, change := range []int{-10, 10} {
		for _, committed := range []bool{false, true} {
			a := newAccount(10)
			for range 2 {
				require.True(t, a.prepare("x", change))
			}
			for range 2 {
				a.settle("x", committed)
			}
			want := 10
			if committed {
				want += change
			}
			balance, prepared := a.state()
			require.Equal(t, want, balance)
			require.Zero(t, prepared)
		}
	}
}

// sweep makes transfers, and a fault at one packet of one process for each, step by step. bound
// checks what the others have to wait for, from the moment of the fault on.
func (s *stage) sweep(victim string, fault suite.Fault, limit time.Duration, bound func(struck time.Time)) {
	suite.Sweep(s.t, func(step int) bool {
		link, coordinator := s.srv.Link(s.t), (*protocol.Client)(nil)
		coordinator = link.Client(s.t)
		broken, client := link, coordinator
		if victim != "coordinator" {
			broken, client = s.links[victim], s.clients[victim]
		}
		id := suite.Session(s.t, client).ID()
		before, _ := s.accounts["bob"].state()

		struck := make(chan time.Time, 1)
		met := suite.At(broken, step, func() {
			struck <- time.Now()
			fault.Do(s.srv, broken, id)
		})
		type outcome struct {
			committed bool
			err       error
		}
		ended := suite.Later(func() outcome {
			committed, err := coordinate(s.t.Context(), coordinator, s.Path(), transfer{From: "alice", To: "bob", Amount: 1})
			return outcome{committed, err}
		})
		if bound != nil {
			select {
			case at := <-struck:
				bound(at)
			case o := <-ended:
				ended = suite.Later(func() outcome { return o })
			}
		}
		o := suite.Wait(s.t, ended)
		if o.err != nil {
			require.Equal(s.t, "coordinator", victim)
			require.ErrorIs(s.t, o.err, protocol.ErrUncertain)
		}

		moved := s.check(time.Now().Add(limit)) - before
		if o.err == nil {
			require.Equal(s.t, o.committed, moved == 1)
		}
		s.arrive("alice", "bob")
		again := met()
		broken.Heal()
		suite.Close(s.t, coordinator)
		return again
	})
}

func TestFaultAtEachPacketOfATransfer(t *testing.T) {
	for _, victim := range []string{"coordinator", "bob"} {
		for _, fault := range suite.QuickFaults {
			t.Run(victim+"/"+fault.Name, func(t *testing.T) {
				suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
					newStage(t, srv).sweep(victim, fault, suite.Limit, nil)
				})
			})
		}
	}
}

func TestLostReplyAtEachPacketOfATransfer(t *testing.T) {
	lost := suite.Fault{Name: "lost reply", Do: func(_ *recipestest.Server, link *recipestest.Link, _ int64) {
		link.LoseReply(recipestest.OpAny, 1)
	}}
	for _, victim := range []string{"coordinator", "bob"} {
		t.Run(victim, func(t *testing.T) {
			suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
				newStage(t, srv).sweep(victim, lost, suite.Limit, nil)
			})
		})
	}
}

// In virtual time, a process that is not waited for takes none.
func TestDeathAtEachPacketDelaysTheOthersForOneSessionTimeout(t *testing.T) {
	const (
		session = 10 * time.Second
		tick    = 2 * time.Second
		away    = 2 * session
		instant = session / 10
	)
	for _, victim := range []string{"coordinator", "alice", "bob"} {
		for name, begin := range map[string]func(*recipestest.Link){
			"cut":   (*recipestest.Link).Cut,
			"stall": (*recipestest.Link).Stall,
		} {
			t.Run(victim+"/"+name, func(t *testing.T) {
				suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
					s := newStage(t, srv)
					s.poll = instant / 4
					death := suite.Fault{Name: name, Do: func(_ *recipestest.Server, link *recipestest.Link, _ int64) {
						begin(link)
						time.AfterFunc(away, link.Heal)
					}}
					s.sweep(victim, death, away+2*session, func(struck time.Time) {
						for survivor := range s.accounts {
							switch victim {
							case survivor:
							case "coordinator":
								time.Sleep(instant)
								require.True(t, s.atRest(survivor), "no participant waits for a coordinator")
							default:
								s.soon(struck.Add(session+tick+instant), survivor+" is not blocked", func() bool { return s.atRest(survivor) })
							}
						}
					})
				})
			})
		}
	}
}

func TestDemoOnTheEmbeddedServer(t *testing.T) {
	t.Parallel()
	requireShown(t, "")
}

func TestDemoOnAnEnsemble(t *testing.T) {
	t.Parallel()
	servers := ensemble.Real(t).ConnectString()
	requireShown(t, servers)
	c, err := protocol.Connect(t.Context(), servers)
	require.NoError(t, err)
	defer c.Close()
	nodes, _, err := suite.Session(t, c).Children(t.Context(), "/")
	require.NoError(t, err)
	require.False(t, slices.ContainsFunc(nodes, func(n string) bool { return strings.HasPrefix(n, "transfer-") }), "%q", nodes)
}

func requireShown(t *testing.T, servers string) {
	t.Helper()
	var out strings.Builder
	err := run(t.Context(), &out, options{servers: servers})
	t.Log(out.String())
	require.NoError(t, err)
	require.Regexp(t, `(?s)killed before it sends.*killed when it has received.*ended: committed is true.*away: committed is false.*back: committed is true.*Fin\.`,
		out.String())
}
