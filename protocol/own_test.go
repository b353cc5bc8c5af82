package protocol_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/protocol/recipe"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

func TestOwnerIsFollowedByAHyphen(t *testing.T) {
	o := recipe.Owner{Session: 1, Nonce: 2}
	for _, name := range []string{"", o.String(), o.String() + "x"} {
		_, _, ok := recipe.ParseOwner(name)
		require.False(t, ok, name)
	}
	parsed, rest, ok := recipe.ParseOwner(o.String() + "-lock-")
	require.True(t, ok)
	require.Equal(t, o, parsed)
	require.Equal(t, "lock-", rest)
}

// Whatever becomes of the connection, there is one node, or none if ctx ends.
func TestOwnNodeIsOneOrNoneAtEachStep(t *testing.T) {
	for _, ends := range []bool{false, true} {
		over := false
		for step := 1; !over; step++ {
			synctest.Test(t, func(t *testing.T) {
				srv := recipestest.Start(t, recipestest.WithInMemory())
				path, link := srv.Root(t)+"/dir", srv.Link(t)
				s, other := session(t, link.Client(t)), session(t, srv.Client(t))
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				stop := link.At(step, func() {
					if ends {
						cancel()
						time.Sleep(time.Millisecond) // until the call has returned
						return
					}
					link.Cut()
					time.AfterFunc(100*time.Millisecond, link.Heal)
				})

				own, err := s.CreateOwn(ctx, recipe.OwnNode{Dir: path, Prefix: s.NewOwner().String() + "-"})

				over = stop()
				time.Sleep(time.Minute)
				names, _, failed := other.Children(t.Context(), path)
				if !errors.Is(failed, zk.ErrNoNode) {
					require.NoError(t, failed)
				}
				if err != nil {
					require.ErrorIs(t, err, context.Canceled, "step %d", step)
					require.Empty(t, names, "step %d", step)
					return
				}
				require.Equal(t, []string{own.Name()}, names, "step %d", step)
				require.NoError(t, own.Withdraw(t.Context()))
			})
		}
	}
}

func TestPrefixOfAnOwnNodeHasNoSlash(t *testing.T) {
	bubble(t, func(t *testing.T, srv *recipestest.Server) {
		s := session(t, srv.Client(t))
		_, err := s.CreateOwn(t.Context(), recipe.OwnNode{Dir: "/dir", Prefix: "a/b-"})
		require.ErrorIs(t, err, zk.ErrBadArguments)
		stat, err := s.Exists(t.Context(), "/dir")
		require.NoError(t, err)
		require.Nil(t, stat, "nothing was created")
	})
}

// A directory that is gone as soon as it was made must not keep the servers busy.
func TestCreateOwnIsPacedWhileItsDirectoryIsMissing(t *testing.T) {
	bubble(t, func(t *testing.T, srv *recipestest.Server) {
		s := session(t, srv.Client(t, impatient(1)))
		dir, attempts := srv.Root(t)+"/dir", 0
		began := time.Now()
		own, err := s.CreateOwn(t.Context(), recipe.OwnNode{
			Dir: dir, Prefix: s.NewOwner().String() + "-",
			Missing: func(ctx context.Context, s *recipe.Session) error {
				if attempts++; time.Since(began) < time.Minute {
					return nil
				}
				_, err := s.EnsurePath(ctx, dir)
				return err
			},
		})
		require.NoError(t, err)
		require.NoError(t, own.Withdraw(t.Context()))
		require.Less(t, attempts, 200)
	})
}
