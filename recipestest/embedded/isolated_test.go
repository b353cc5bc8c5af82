package embedded_test

import (
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/internal/zkwire"
	"github.com/zkrecipes/zkrecipes/recipestest/embedded"
)

// away is a time in which sessions expire.
const away = 2 * time.Minute

func TestIsolatedFollowerAnswersReadsAndPings(t *testing.T) {
	for name, test := range map[string]struct {
		isolate func(*embedded.Follower)
		syncs   bool
	}{
		"isolated":       {(*embedded.Follower).Isolate, false},
		"deposed leader": {(*embedded.Follower).Depose, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, embedded.Config{}, func(t *testing.T, s *embedded.Server) {
				f := s.Follower()
				leads, c := dial(t, s), dial(t, f)
				put(t, leads, "/a", "old")
				suite.Got(c.Create("/mine", nil, zk.FlagEphemeral, open))(t)
				test.isolate(f)

				set(t, leads, "/a", "new")
				time.Sleep(away)
				require.Equal(t, zk.StateHasSession, c.State(), "pings are answered")
				require.False(t, exists(t, leads, "/mine"), "the leader has ended the session")
				require.True(t, exists(t, c, "/mine"))
				require.Equal(t, "old", data(t, c, "/a"))

				synced := later(func() error { _, err := c.Sync("/a"); return err })
				if test.syncs {
					require.NoError(t, suite.Wait(t, synced))
					require.Equal(t, "old", data(t, c, "/a"))
				} else {
					requireNothing(t, synced)
				}
				written := later(func() error { _, err := c.Set("/a", []byte("lost"), -1); return err })
				read := later(func() error { _, _, err := c.Get("/a"); return err })
				requireNothing(t, written)
				requireNothing(t, read) // it waits for the write
				require.Equal(t, "new", data(t, leads, "/a"))
				connected := later(func() *zk.Conn { return dial(t, f) })
				time.Sleep(away)
				requireNothing(t, connected)

				f.Rejoin()
				require.Equal(t, zk.StateHasSession, suite.Wait(t, connected).State())
				require.Error(t, suite.Wait(t, written))
				require.Error(t, suite.Wait(t, read))
				require.Equal(t, "new", suite.Wait(t, later(func() string { return dataOf(c, "/a") })))
			})
		})
	}
}

// dataOf returns the data of a node once the client is connected, or an error if it is not within a
// minute.
func dataOf(c *zk.Conn, path string) string {
	for limit := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		b, _, err := c.Get(path)
		if err == nil {
			return string(b)
		}
		if time.Now().After(limit) {
			return err.Error()
		}
	}
}

func TestDeposedLeaderResumesTheSessionsItKnows(t *testing.T) {
	t.Parallel()
	bubble(t, embedded.Config{}, func(t *testing.T, s *embedded.Server) {
		f := s.Follower()
		leads, old := connect(t, s, hello{}), connect(t, f, hello{})
		f.Depose()
		time.Sleep(away)
		require.NotZero(t, connect(t, s, hello{}).session)
		ended := connect(t, s, hello{session: leads.session, password: leads.password})
		require.Zero(t, ended.session, "the new leader has ended it")

		// The old leader goes on serving both sessions, and knows of no others.
		for _, w := range []*wireClient{leads, old} {
			again := connect(t, f, hello{session: w.session, password: w.password})
			require.Equal(t, w.session, again.session)
			require.Zero(t, again.must(t, zkwire.OpSync, packet{}.string("/")).code)
			require.Zero(t, again.must(t, zkwire.OpExists, packet{}.string("/").bool(false)).code)
		}
		wrong := connect(t, f, hello{session: old.session, password: make([]byte, 16)})
		require.Zero(t, wrong.session)
		young := connect(t, s, hello{})
		require.Zero(t, connect(t, f, hello{session: young.session, password: young.password}).session)

		f.Rejoin()
		require.Zero(t, connect(t, f, hello{session: old.session, password: old.password}).session)
	})
}

func TestSyncAtADeposedLeaderIsNoFence(t *testing.T) {
	t.Parallel()
	bubble(t, embedded.Config{}, func(t *testing.T, s *embedded.Server) {
		f := s.Follower()
		before := connect(t, s, hello{}) // with a timeout of 40 s
		f.Depose()
		require.Zero(t, before.must(t, zkwire.OpCreate, packet{}.create("/a", nil, 0)).code)

		// A client that has lost this answer resumes its session there. The new leader doesn't
		// know.
		time.Sleep(30 * time.Second)
		c := connect(t, f, hello{session: before.session, password: before.password})
		require.Zero(t, c.must(t, zkwire.OpSync, packet{}.string("/")).code)
		require.EqualValues(t, zkwire.CodeNoNode, c.must(t, zkwire.OpExists, packet{}.string("/a").bool(false)).code)
		ended := later(func() error { _, err := before.receive(); return err })
		requireNothing(t, ended)
		time.Sleep(15 * time.Second)
		require.ErrorIs(t, suite.Wait(t, ended), io.EOF)
		require.False(t, s.ExpireSession(c.session), "it has expired")
	})
}

func TestSyncIsAFenceUnlessItIsAnsweredAtOnce(t *testing.T) {
	const commits = time.Second
	for name, hasty := range map[string]bool{"by default": false, "answered at once": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, embedded.Config{}, func(t *testing.T, s *embedded.Server) {
				f, leader := s.Follower(), s.Follower()
				c := connect(t, f, hello{})
				f.Lag(commits)
				leader.Lag(commits)
				if hasty {
					leader.AnswerSyncsAtOnce()
				}

				// The session moves on before its write has been committed.
				began := time.Now()
				require.NoError(t, c.send(zkwire.OpCreate, packet{}.create("/a", nil, 0)))
				time.Sleep(commits / 10)
				c = connect(t, leader, hello{session: c.session, password: c.password})
				require.Zero(t, c.must(t, zkwire.OpSync, packet{}.string("/")).code)
				there := c.must(t, zkwire.OpExists, packet{}.string("/a").bool(false)).code == 0
				require.Equal(t, !hasty, there)
				require.Equal(t, hasty, time.Since(began) < commits)

				// A write is one in any case.
				require.EqualValues(t, zkwire.CodeNoNode, c.must(t, zkwire.OpDelete, packet{}.string("/none").int32(-1)).code)
				require.Zero(t, c.must(t, zkwire.OpExists, packet{}.string("/a").bool(false)).code)

				// A sync comes after what was sent before it, and sees what any client has seen.
				require.NoError(t, c.send(zkwire.OpCreate, packet{}.create("/c", nil, 0)))
				require.NoError(t, c.send(zkwire.OpSync, packet{}.string("/")))
				for _, path := range []string{"/c", "/"} {
					a := suite.Got(c.receive())(t)
					require.Equal(t, path, a.String())
				}
				require.Zero(t, c.must(t, zkwire.OpExists, packet{}.string("/c").bool(false)).code)
				f.Lag(0)
				require.Zero(t, connect(t, f, hello{}).must(t, zkwire.OpCreate, packet{}.create("/b", nil, 0)).code)
				require.Zero(t, c.must(t, zkwire.OpSync, packet{}.string("/")).code)
				require.Zero(t, c.must(t, zkwire.OpExists, packet{}.string("/b").bool(false)).code)
			})
		})
	}
}

func TestFollowerReportsSessionsLate(t *testing.T) {
	t.Parallel()
	bubble(t, embedded.Config{}, func(t *testing.T, s *embedded.Server) {
		f := s.Follower()
		leads, c := dial(t, s), dial(t, f) // with timeouts of 40 s
		suite.Got(c.Create("/mine", nil, zk.FlagEphemeral, open))(t)

		f.Report(10 * time.Second)
		time.Sleep(away)
		require.True(t, exists(t, leads, "/mine"), "it is reported in time")

		f.Report(away)
		time.Sleep(away)
		synctest.Wait()
		require.False(t, exists(t, leads, "/mine"), "the report comes too late")

		f.Report(0)
		_, err := c.Create("/mine", nil, zk.FlagEphemeral, open)
		for err != nil {
			time.Sleep(time.Millisecond)
			_, err = c.Create("/mine", nil, zk.FlagEphemeral, open)
		}
		time.Sleep(away)
		require.True(t, exists(t, leads, "/mine"), "it is reported at once")
	})
}
