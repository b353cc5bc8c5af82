package embedded_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

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
				_, err := c.Create("/mine", nil, zk.FlagEphemeral, open)
				require.NoError(t, err)
				test.isolate(f)

				set(t, leads, "/a", "new")
				time.Sleep(away)
				require.Equal(t, zk.StateHasSession, c.State(), "pings are answered")
				require.False(t, exists(t, leads, "/mine"), "the leader has ended the session")
				require.True(t, exists(t, c, "/mine"))
				require.Equal(t, "old", data(t, c, "/a"))

				synced := later(func() error { _, err := c.Sync("/a"); return err })
				if test.syncs {
					require.NoError(t, receive(t, synced))
					require.Equal(t, "old", data(t, c, "/a"))
				} else {
					requireNothing(t, synced)
				}
				written := later(func() error { _, err := c.Set("/a", []byte("lost"), -1); return err })
				read := later(func() error { _, _, err := c.Get("/a"); return err })
				requireNothing(t, written)
				requireNothing(t, read) // it waits for the write
				require.Equal(t, "new", data(t, leads, "/a"))

				f.Rejoin()
				require.Error(t, receive(t, written))
				require.Error(t, receive(t, read))
				require.Equal(t, "new", <-later(func() string { return dataOf(c, "/a") }))
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

func TestIsolatedFollowerOpensNoSession(t *testing.T) {
	t.Parallel()
	bubble(t, embedded.Config{}, func(t *testing.T, s *embedded.Server) {
		f := s.Follower()
		f.Isolate()
		connected := later(func() *zk.Conn { return dial(t, f) })
		time.Sleep(away)
		requireNothing(t, connected)
		f.Rejoin()
		require.Equal(t, zk.StateHasSession, (<-connected).State())
	})
}

func TestFollowerReportsSessionsLate(t *testing.T) {
	t.Parallel()
	bubble(t, embedded.Config{}, func(t *testing.T, s *embedded.Server) {
		f := s.Follower()
		leads, c := dial(t, s), dial(t, f) // with timeouts of 40 s
		_, err := c.Create("/mine", nil, zk.FlagEphemeral, open)
		require.NoError(t, err)

		f.Report(10 * time.Second)
		time.Sleep(away)
		require.True(t, exists(t, leads, "/mine"), "it is reported in time")

		f.Report(away)
		time.Sleep(away)
		synctest.Wait()
		require.False(t, exists(t, leads, "/mine"), "the report comes too late")

		f.Report(0)
		_, err = c.Create("/mine", nil, zk.FlagEphemeral, open)
		for err != nil {
			time.Sleep(time.Millisecond)
			_, err = c.Create("/mine", nil, zk.FlagEphemeral, open)
		}
		time.Sleep(away)
		require.True(t, exists(t, leads, "/mine"), "it is reported at once")
	})
}
