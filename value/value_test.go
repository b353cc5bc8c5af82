package value_test

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/recipestest"
	"github.com/zkrecipes/zkrecipes/value"
)

// plusOne counts in decimal, as kazoo's Counter does.
func plusOne(old value.State) ([]byte, error) {
	n, _ := strconv.Atoi(string(old.Data))
	return []byte(strconv.Itoa(n + 1)), nil
}

func TestValue(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		v := value.New(srv.Client(t), srv.Root(t)+"/a/limit")
		_, err := v.Get(patient(t))
		require.ErrorIs(t, err, value.ErrUnset)
		require.NoError(t, v.Delete(patient(t)))

		var last value.State
		for n := range 3 {
			state, err := v.Set(patient(t), []byte(strconv.Itoa(n)))
			require.NoError(t, err)
			require.Greater(t, state.Token, last.Token)
			got, err := v.Get(patient(t))
			require.NoError(t, err)
			require.Equal(t, got, state)
			require.WithinDuration(t, time.Now(), state.Modified, time.Minute)
			last = state
		}
		require.NoError(t, v.Delete(patient(t)))
		state, err := v.Set(patient(t), nil)
		require.NoError(t, err)
		require.Greater(t, state.Token, last.Token)
		require.False(t, state.Unset())
		require.NoError(t, v.Delete(patient(t)))
	})
}

func TestUpdateGivesUpWithItsFunction(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path := srv.Root(t) + "/v"
		v, other := value.New(srv.Client(t), path), value.New(srv.Client(t), path)
		full := errors.New("full")
		_, err := v.Update(patient(t), func(value.State) ([]byte, error) { return nil, full })
		require.ErrorIs(t, err, full)
		_, err = v.Get(patient(t))
		require.ErrorIs(t, err, value.ErrUnset)

		// Another client writes meanwhile: it is asked again.
		calls := 0
		state, err := v.Update(patient(t), func(old value.State) ([]byte, error) {
			if calls++; calls == 1 {
				_, err := other.Set(patient(t), []byte("room"))
				require.NoError(t, err)
			}
			return append(old.Data, '!'), nil
		})
		require.NoError(t, err)
		require.Equal(t, "room!", string(state.Data))
		require.Equal(t, 2, calls)

		_, err = v.Update(patient(t), nil)
		require.ErrorContains(t, err, "nil function")
		_, err = v.Set(patient(t), make([]byte, protocol.MaxData))
		require.ErrorIs(t, err, protocol.ErrTooLarge)
		require.PanicsWithValue(t, "oops", func() {
			v.Update(patient(t), func(value.State) ([]byte, error) { panic("oops") })
		})
	})
}

// A value that is deleted and set again has the versions that it had before. No update that began
// before takes it for the same.
func TestUpdateIsOfTheValueThatItHasRead(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path := srv.Root(t) + "/v"
		v, other := value.New(srv.Client(t), path), value.New(srv.Client(t), path)
		_, err := v.Set(patient(t), []byte("old"))
		require.NoError(t, err)
		var replaced <-chan error
		state, err := v.Update(patient(t), func(old value.State) ([]byte, error) {
			replaced = suite.Later(func() error {
				if err := other.Delete(patient(t)); err != nil {
					return err
				}
				_, err := other.Set(patient(t), []byte("new"))
				return err
			})
			time.Sleep(time.Second)
			return append(old.Data, '!'), nil
		})
		require.NoError(t, err)
		require.Equal(t, "old!", string(state.Data))
		require.NoError(t, suite.Wait(t, replaced))
		state, err = v.Get(patient(t))
		require.NoError(t, err)
		require.Equal(t, "new", string(state.Data))
	})
}

// The reply to the deletion is lost, and another client sets the value. The deletion is not
// repeated.
func TestDeleteHappensOnce(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path, link := srv.Root(t)+"/v", srv.Link(t)
		v, other := value.New(link.Client(t), path), value.New(srv.Client(t), path)
		_, err := other.Set(patient(t), []byte("old"))
		require.NoError(t, err)
		time.Sleep(time.Second)
		link.Meet(6, func([]string) { // before the answer to the deletion
			_, err := other.Set(patient(t), []byte("new"))
			require.NoError(t, err)
			link.Cut()
			link.Heal()
		})
		require.NoError(t, v.Delete(patient(t)))
		state, err := other.Get(patient(t))
		require.NoError(t, err)
		require.Equal(t, "new", string(state.Data))
	})
}

// A deletion waits for a writer whose receipt is there, and leaves children of others alone.
func TestDeleteAmongChildren(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path := srv.Root(t) + "/v"
		v, s := value.New(srv.Client(t), path), suite.Session(t, srv.Client(t))
		_, err := v.Set(patient(t), nil)
		require.NoError(t, err)
		require.NoError(t, s.Create(patient(t), path+"/receipt-other", nil, zk.FlagEphemeral))
		deleted := suite.Later(func() error { return v.Delete(patient(t)) })
		time.Sleep(5 * time.Second)
		require.Empty(t, deleted)
		require.NoError(t, s.Delete(patient(t), path+"/receipt-other", -1))
		require.NoError(t, suite.Wait(t, deleted))

		_, err = v.Set(patient(t), nil)
		require.NoError(t, err)
		require.NoError(t, s.Create(patient(t), path+"/child", nil, 0))
		require.ErrorIs(t, v.Delete(patient(t)), zk.ErrNotEmpty)
	})
}

func TestWatch(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path, link := srv.Root(t)+"/v", srv.Link(t)
		c := link.Client(t)
		v, writer := value.New(c, path), value.New(srv.Client(t), path)
		ctx, cancel := context.WithCancel(t.Context())
		states := make(chan value.State, 10)
		over := suite.Later(func() error {
			for state, err := range v.Watch(ctx) {
				if err != nil {
					return err
				}
				states <- state
			}
			return nil
		})
		require.True(t, suite.Wait(t, states).Unset())
		set := func(data string) {
			t.Helper()
			_, err := writer.Set(patient(t), []byte(data))
			require.NoError(t, err)
		}
		set("a")
		require.Equal(t, "a", string(suite.Wait(t, states).Data))
		require.NoError(t, writer.Delete(patient(t)))
		require.True(t, suite.Wait(t, states).Unset())

		// What happens without a connection is skipped, but for the last, also in another session.
		link.Cut()
		set("c")
		set("d")
		link.Heal()
		require.Equal(t, "d", string(suite.Wait(t, states).Data))
		session := suite.Session(t, c)
		link.Cut()
		suite.Expire(srv, session.ID())
		set("e")
		link.Heal()
		require.Equal(t, "e", string(suite.Wait(t, states).Data))
		suite.Expire(srv, suite.Session(t, c).ID())
		time.Sleep(time.Minute)
		require.Empty(t, states) // nothing has changed

		cancel()
		require.NoError(t, suite.Wait(t, over))
	})
}

// The value is set between the read that has found none and the watch for its creation.
func TestWatchMeetsTheFirstWrite(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path, link := srv.Root(t)+"/v", srv.Link(t)
		v, writer := value.New(link.Client(t), path), value.New(srv.Client(t), path)
		link.Meet(5, func(operations []string) {
			require.Contains(t, operations[0], "getChildren")
			_, err := writer.Set(patient(t), []byte("first"))
			require.NoError(t, err)
		})
		for state, err := range v.Watch(patient(t)) {
			require.NoError(t, err)
			require.Equal(t, "first", string(state.Data))
			break
		}
	})
}

// Loops of one client share a watch, and receipts wake nobody.
func TestManyWatchersCostOneRead(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path, link := srv.Root(t)+"/v", srv.Link(t)
		v, writer := value.New(link.Client(t), path), value.New(srv.Client(t), path)
		_, err := writer.Set(patient(t), []byte("0"))
		require.NoError(t, err)
		var watching sync.WaitGroup
		for range 1000 {
			watching.Go(func() {
				for state, err := range v.Watch(patient(t)) {
					if err != nil || string(state.Data) == "10" {
						return
					}
				}
			})
		}
		time.Sleep(time.Second)
		packets, reads := link.Packets(), link.Count(recipestest.OpGetData)
		for range 10 {
			_, err := writer.Update(patient(t), plusOne)
			require.NoError(t, err)
			synctest.Wait()
		}
		watching.Wait()
		require.Equal(t, reads+10, link.Count(recipestest.OpGetData))
		require.Equal(t, packets+3*10, link.Packets()) // an event, a read and its answer
	})
}
