package election_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/election"
	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

// A crowd is some observers behind one link, whose requests take a millisecond of virtual time.
type crowd struct {
	link    *recipestest.Link
	client  *protocol.Client
	changes []<-chan string
	stop    context.CancelFunc
}

func newCrowd(t *testing.T, srv *recipestest.Server, path string, n int) *crowd {
	c := &crowd{link: srv.Link(t)}
	c.client = c.link.Client(t)
	c.link.Delay(time.Millisecond)
	e := election.New(c.client, path)
	ctx, stop := context.WithCancel(t.Context())
	c.stop = stop
	for range n {
		c.changes = append(c.changes, observed(t, ctx, e))
	}
	return c
}

// sees waits until all have seen a change, and returns what they have asked since the count before.
func (c *crowd) sees(t *testing.T, want string, before int) (requests int) {
	t.Helper()
	for _, changes := range c.changes {
		require.Equal(t, want, next(t, changes))
	}
	time.Sleep(time.Second)
	for _, changes := range c.changes {
		require.Empty(t, changes)
	}
	return c.requests() - before
}

func (c *crowd) requests() int { return c.link.Count(recipestest.OpAny) }

// lineUp makes candidates with these names campaign, one after the other.
func lineUp(t *testing.T, onlooker, c *protocol.Client, path, names string, wait *suite.Group) (won []<-chan *election.Term) {
	for i, name := range strings.Fields(names) {
		won = append(won, stand(t, onlooker, c, path, name, i, wait))
	}
	return won
}

func TestAThousandObserversOfAClientCostWhatOneCosts(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		onlooker, c, path := srv.Client(t), srv.Client(t), srv.Root(t)+"/crowd"
		var wait suite.Group
		won := lineUp(t, onlooker, c, path, "a b c", &wait)

		crowd := newCrowd(t, srv, path, 1000)
		crowd.sees(t, "a", 0)
		require.LessOrEqual(t, crowd.link.Count(recipestest.OpSync), 2, "the first one's, and one for all others")
		require.Equal(t, 1, crowd.link.Count(recipestest.OpGetChildren))
		require.Equal(t, 1, crowd.link.Count(recipestest.OpGetData))

		ctx, leave := context.WithCancel(t.Context())
		late := observed(t, ctx, election.New(crowd.client, path))
		before := crowd.requests()
		require.Equal(t, "a", next(t, late))
		require.Equal(t, before+1, crowd.requests(), "a new observer costs a Sync")
		leave()

		events := crowd.link.Events()
		before = crowd.requests()
		term := next(t, won[0])
		require.NoError(t, term.Proclaim(t.Context(), []byte("a, ready")))
		require.Equal(t, 1, crowd.sees(t, "a, ready", before))
		for i, leader := range []string{"b", "c", "vacant"} {
			before = crowd.requests()
			resign(t, term)
			require.Equal(t, 1, crowd.sees(t, leader, before), leader)
			if i+1 < len(won) {
				term = next(t, won[i+1])
			}
		}
		require.Equal(t, events+4, crowd.link.Events(), "one for each change")

		before = crowd.requests()
		d := campaign(t, c, path, "d")
		require.Equal(t, 2, crowd.sees(t, "d", before), "who comes into an empty line has to be listed and read")

		before = crowd.requests()
		time.Sleep(time.Hour)
		require.LessOrEqual(t, crowd.requests()-before, 62, "one recheck a minute")
		resign(t, d)
		crowd.sees(t, "vacant", before)
		before = crowd.requests()
		time.Sleep(time.Hour)
		require.LessOrEqual(t, crowd.requests()-before, 65, "and some when the server removes the empty container")
		crowd.stop()
		time.Sleep(time.Second)
		before = crowd.requests()
		time.Sleep(time.Hour)
		require.Equal(t, before, crowd.requests(), "no observer is left")
		require.NoError(t, wait.Wait())
	})
}

func TestObserversOfManySessionsCostOneRequestEach(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		onlooker, c, path := srv.Client(t), srv.Client(t), srv.Root(t)+"/sessions"
		var wait suite.Group
		won := lineUp(t, onlooker, c, path, "a b", &wait)
		var crowds []*crowd
		for range 100 {
			crowds = append(crowds, newCrowd(t, srv, path, 1))
		}
		each := func(leader string, requests int) {
			for _, c := range crowds {
				require.Equal(t, leader, next(t, c.changes[0]))
			}
			time.Sleep(time.Second)
			for _, c := range crowds {
				require.Equal(t, requests, c.requests())
			}
		}
		each("a", 3)
		resign(t, next(t, won[0]))
		each("b", 4)
		resign(t, next(t, won[1]))
		each("vacant", 5)
		require.NoError(t, wait.Wait())
	})
}

// A successor that came after the line was listed is not known, until the next recheck.
func TestObserverFindsOutWhoIsNext(t *testing.T) {
	for idle, requests := range map[time.Duration]int{0: 2, 2 * time.Minute: 1} {
		t.Run(fmt.Sprint(idle), func(t *testing.T) {
			suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
				onlooker, c, path := srv.Client(t), srv.Client(t), srv.Root(t)+"/next"
				var wait suite.Group
				a := campaign(t, c, path, "a")
				crowd := newCrowd(t, srv, path, 10)
				crowd.sees(t, "a", 0)
				b := stand(t, onlooker, c, path, "b", 1, &wait)
				time.Sleep(idle)
				before := crowd.requests()
				resign(t, a)
				require.Equal(t, requests, crowd.sees(t, "b", before))
				resign(t, next(t, b))
				require.NoError(t, wait.Wait())
			})
		})
	}
}

func TestObserversPassOverCandidatesThatAreGone(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		onlooker, path := srv.Client(t), srv.Root(t)+"/passed"
		var wait suite.Group
		leader := campaign(t, srv.Client(t), path, "a")
		ctx, giveUp := context.WithCancel(t.Context())
		gaveUp := make(chan error, 1)
		go func() {
			_, err := election.New(srv.Client(t), path).Campaign(ctx, []byte("b"))
			gaveUp <- err
		}()
		suite.Await(t, 2, election.New(onlooker, path).Candidates)
		won := make(map[string]<-chan *election.Term)
		for i, name := range []string{"c", "d", "e"} {
			won[name] = stand(t, onlooker, srv.Client(t), path, name, i+2, &wait)
		}

		observer := srv.Client(t)
		changes := observed(t, t.Context(), election.New(observer, path))
		require.Equal(t, "a", next(t, changes))
		giveUp()
		require.ErrorIs(t, <-gaveUp, context.Canceled)
		line := suite.Await(t, 4, election.New(onlooker, path).Candidates)
		require.NoError(t, leader.ResignTo(t.Context(), line[2].Node), "which passes c over")
		require.Equal(t, "d", next(t, changes))

		// Candidate c has joined again, behind e.
		suite.Await(t, 3, election.New(onlooker, path).Candidates)
		for _, name := range []string{"d", "e", "c"} {
			resign(t, next(t, won[name]))
			want := map[string]string{"d": "e", "e": "c", "c": "vacant"}[name]
			require.Equal(t, want, next(t, changes))
		}
		require.NoError(t, wait.Wait())
	})
}

// More candidates lead than an observer keeps of a listing.
func TestObserverFollowsALongLine(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		const n = 20
		onlooker, c, path := srv.Client(t), srv.Client(t), srv.Root(t)+"/long"
		var wait suite.Group
		var names []string
		for i := range n {
			names = append(names, fmt.Sprint(i))
		}
		won := lineUp(t, onlooker, c, path, strings.Join(names, " "), &wait)
		crowd := newCrowd(t, srv, path, 3)
		for i, name := range names {
			crowd.sees(t, name, 0)
			resign(t, next(t, won[i]))
		}
		crowd.sees(t, "vacant", 0)
		require.Equal(t, n, crowd.link.Count(recipestest.OpGetData))
		require.Equal(t, 1+2+1, crowd.link.Count(recipestest.OpGetChildren), "one for eight leaders, and one for the vacancy")
		require.Equal(t, n, crowd.link.Events(), "no watch was left on the line")
		require.NoError(t, wait.Wait())
	})
}

// Another library may use names that come again when the line was deleted and created. What an
// observer knows of such a name says nothing about the node that has it later.
func TestObserverDoesNotTrustAForeignNameThatComesAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := recipestest.Start(t, recipestest.WithInMemory())
		c, path := srv.Client(t), srv.Root(t)+"/again"
		conn := suite.Session(t, c).Conn()
		foreign := func(value string) string {
			node, err := conn.Create(path+"/lock-", []byte(value), zk.FlagEphemeral|zk.FlagSequence, zk.WorldACL(zk.PermAll))
			require.NoError(t, err)
			return node
		}
		a := campaign(t, c, path, "a")
		before := foreign("stale")
		crowd := newCrowd(t, srv, path, 1)
		crowd.sees(t, "a", 0)

		crowd.link.Cut()
		resign(t, a)
		require.NoError(t, conn.Delete(before, -1))
		require.NoError(t, conn.Delete(path, -1))
		b := campaign(t, c, path, "b")
		require.Equal(t, before, foreign("foreign"), "the name comes again")
		crowd.link.Heal()
		crowd.sees(t, "b", 0)
		resign(t, b)
		crowd.sees(t, "foreign", 0)
		require.NoError(t, conn.Delete(before, -1))
	})
}

func TestNewObserverDoesNotYieldAnEarlierLeader(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		c, path := srv.Client(t), srv.Root(t)+"/newest"
		a := campaign(t, c, path, "a")
		crowd := newCrowd(t, srv, path, 1)
		crowd.sees(t, "a", 0)
		crowd.link.Delay(100 * time.Millisecond)
		resign(t, a)
		b := campaign(t, c, path, "b")
		late := observed(t, t.Context(), election.New(crowd.client, path))
		require.Equal(t, "b", next(t, late))
		resign(t, b)
	})
}

// forgetful is a connection over which no event about children comes.
type forgetful struct {
	net.Conn
	left bytes.Buffer
}

func (f *forgetful) Read(p []byte) (int, error) {
	for f.left.Len() == 0 {
		var header [4]byte
		if _, err := io.ReadFull(f.Conn, header[:]); err != nil {
			return 0, err
		}
		packet := make([]byte, binary.BigEndian.Uint32(header[:]))
		if _, err := io.ReadFull(f.Conn, packet); err != nil {
			return 0, err
		}
		const xid, kind = "\xff\xff\xff\xff", "\x00\x00\x00\x04" // an event; of children that have changed
		if !bytes.HasPrefix(packet, []byte(xid)) || !bytes.HasPrefix(packet[16:], []byte(kind)) {
			f.left.Write(append(header[:], packet...))
		}
	}
	return f.left.Read(p)
}

// An event that has not come must not make an observer read the same node over and over.
func TestObserverOfAForgetfulServerSeesAVacancy(t *testing.T) {
	t.Parallel()
	srv := recipestest.Start(t)
	onlooker, path := srv.Client(t), srv.Root(t)+"/forgotten"
	link := srv.Link(t)
	observer := link.Client(t, protocol.WithDialer(func(network, address string, timeout time.Duration) (net.Conn, error) {
		c, err := link.Dial(network, address, timeout)
		return &forgetful{Conn: c}, err
	}))
	var wait suite.Group
	a := campaign(t, srv.Client(t), path, "a")
	changes := observed(t, t.Context(), election.New(observer, path))
	require.Equal(t, "a", next(t, changes))
	b := stand(t, onlooker, srv.Client(t), path, "b", 1, &wait)
	resign(t, a)
	require.Equal(t, "b", next(t, changes), "by a listing that watches the line")
	resign(t, next(t, b))
	require.Equal(t, "vacant", next(t, changes))
	require.NoError(t, wait.Wait())
}

// The goroutine that observers share ends with the last of them, and what it was told does not.
func TestObserversComeAndGo(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		c, path := srv.Client(t), srv.Root(t)+"/turnover"
		e := election.New(c, path)
		leader := srv.Client(t)
		var wait suite.Group
		for i := range 20 {
			term := campaign(t, leader, path, fmt.Sprint(i))
			for range 8 {
				wait.Go(func() error {
					for l, err := range e.Observe(t.Context()) {
						if err != nil || l.Token == term.Token() {
							return err
						}
						if l.Token < term.Token() {
							return fmt.Errorf("leader %d is older than the call", l.Token)
						}
					}
					return nil
				})
			}
			require.NoError(t, wait.Wait())
			resign(t, term)
		}
	})
}
