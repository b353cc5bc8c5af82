package line_test

import (
	"context"
	"testing"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/protocol/line"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

func TestKindHasNoSlash(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		link := srv.Link(t)
		l := lineAt(link.Client(t), "/line")
		for _, try := range []bool{false, true} {
			_, err := l.Enter(t.Context(), line.Request{Kind: "a/" + request.Kind, Try: try})
			require.ErrorIs(t, err, zk.ErrBadArguments)
			require.ErrorContains(t, err, "slash")
		}
		require.Zero(t, link.Count(recipestest.OpGetChildren)+link.Count(recipestest.OpMulti))
	})
}

// impatient returns an option for a back-off that ends after so many retries.
func impatient(retries uint64) protocol.Option {
	return protocol.WithBackOff(func() backoff.BackOff {
		return backoff.WithMaxRetries(backoff.NewConstantBackOff(10*time.Millisecond), retries)
	})
}

// A call that has returned begins nothing any more: it only undoes what it had begun.
func TestCallThatWasGivenUpCreatesNothingLater(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path, link := srv.Root(t)+"/line", srv.Link(t)
		dialer, creates := suite.Breaking(link, recipestest.OpCreate)
		c := link.Client(t, dialer, impatient(0))
		require.NoError(t, hold(t, c, path).Resign(suite.Lasting(t)))
		before := link.Count(recipestest.OpCreate)
		creates.Store(1)

		_, err := lineAt(c, path).Enter(context.Background(), request)

		require.ErrorContains(t, err, "given up")
		time.Sleep(time.Minute)
		require.Zero(t, creates.Load())
		require.Equal(t, before, link.Count(recipestest.OpCreate))
	})
}
