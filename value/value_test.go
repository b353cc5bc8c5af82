package value_test

import (
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/recipestest"
	"github.com/zkrecipes/zkrecipes/value"
)

func TestMain(m *testing.M) { suite.Main(m) }

func TestValue(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		v := value.New(srv.Client(t), srv.Root(t)+"/a/limit")
		_, err := v.Get(suite.Lasting(t))
		require.ErrorIs(t, err, value.ErrUnset)

		var last value.State
		for _, data := range []string{"old", "new", ""} { // a value that is set can be empty
			state := suite.Got(v.Set(suite.Lasting(t), []byte(data)))(t)
			require.Greater(t, state.Token, last.Token)
			got := suite.Must(t, v.Get)
			require.Equal(t, got, state)
			require.WithinDuration(t, time.Now(), state.Modified, time.Minute)
			last = state
			if data != "old" {
				require.NoError(t, v.Delete(suite.Lasting(t)))
			}
		}
	})
}

func TestUpdateGivesUpWithItsFunction(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path := srv.Root(t) + "/v"
		c, calls, full := srv.Client(t), 0, errors.New("full")
		v, other := value.New(c, path), value.New(srv.Client(t), path)
		_, err := v.Update(suite.Lasting(t), func(value.State) ([]byte, error) {
			if s := suite.Session(t, c); calls == 0 { // that doesn't make it call fn again
				suite.Expire(srv, s.ID())
				<-s.Done()
			}
			calls++
			return []byte("x"), full
		})
		require.ErrorIs(t, err, full)
		require.Equal(t, 1, calls)

		// Another client writes meanwhile, so fn is called again.
		calls = 0
		state, err := v.Update(suite.Lasting(t), func(old value.State) ([]byte, error) {
			if calls++; calls == 1 {
				require.True(t, old.Unset())
				suite.Got(other.Set(suite.Lasting(t), []byte("room")))(t)
			}
			return append(old.Data, '!'), nil
		})
		require.NoError(t, err)
		require.Equal(t, "room!", string(state.Data))
		require.Equal(t, 2, calls)
	})
}

// A deletion waits for a writer whose receipt is there.
func TestDeleteWaitsForAWriter(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path := srv.Root(t) + "/v"
		v, s := value.New(srv.Client(t), path), suite.Session(t, srv.Client(t))
		suite.Ensure(t, s, path)
		require.NoError(t, s.Create(suite.Lasting(t), path+"/receipt-other", nil, zk.FlagEphemeral))
		deleted := suite.Later(func() error { return v.Delete(suite.Lasting(t)) })
		time.Sleep(5 * time.Second)
		require.Empty(t, deleted)
		require.NoError(t, s.Delete(suite.Lasting(t), path+"/receipt-other", -1))
		require.NoError(t, suite.Wait(t, deleted))
	})
}

// The value is set between the read that has found none and the watch for its creation.
func TestWatchMeetsTheFirstWrite(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path, link := srv.Root(t)+"/v", srv.Link(t)
		v, writer := value.New(link.Client(t), path), value.New(srv.Client(t), path)
		link.Meet(5, func(operations []string) {
			require.Contains(t, operations[0], "getChildren")
			suite.Got(writer.Set(suite.Lasting(t), []byte("first")))(t)
		})
		for state, err := range v.Watch(suite.Lasting(t)) {
			require.NoError(t, err)
			require.Equal(t, "first", string(state.Data))
			break
		}
	})
}

// Loops of one client share a watch. Receipts wake no loop.
func TestManyWatchersCostOneRead(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path, link := srv.Root(t)+"/v", srv.Link(t)
		v, writer := value.New(link.Client(t), path), value.New(srv.Client(t), path)
		suite.Ensure(t, suite.Session(t, srv.Client(t)), path)
		var watching sync.WaitGroup
		for range 1000 {
			watching.Go(func() {
				var last value.State
				for state, err := range v.Watch(suite.Lasting(t)) {
					assert.NoError(t, err)
					assert.Greater(t, state.Token, last.Token, "a state is yielded once")
					if last = state; last.Version == 10 {
						return
					}
				}
			})
		}
		time.Sleep(time.Second)
		packets, reads := link.Packets(), link.Count(recipestest.OpGetData)
		for range 10 {
			suite.Got(writer.Set(suite.Lasting(t), nil))(t)
			synctest.Wait()
		}
		watching.Wait()
		require.Equal(t, reads+10, link.Count(recipestest.OpGetData))
		require.Equal(t, packets+3*10, link.Packets()) // an event, a read and its answer
	})
}
