package semaphore_test

import (
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/recipestest"
	"github.com/zkrecipes/zkrecipes/semaphore"
)

// Each request that the server refuses once ends Resize with that error. A Resize that went on
// without the answer would succeed.
func TestRefusedRequestEndsResize(t *testing.T) {
	const noAuth = -102
	for name, op := range map[string]recipestest.Op{
		"the path":    recipestest.OpCreateContainer,
		"the sync":    recipestest.OpSync,
		"the listing": recipestest.OpGetChildren,
		"the number":  recipestest.OpMulti,
	} {
		t.Run(name, func(t *testing.T) {
			srv := recipestest.Start(t)
			link := srv.Link(t)
			c := link.Client(t)
			suite.CatchUp(t, c)
			link.Fail(op, "", noAuth, 1)
			s := semaphore.New(c, srv.Root(t)+"/s", 1)
			require.ErrorIs(t, s.Resize(t.Context(), 2), zk.ErrNoAuth)
			require.NoError(t, s.Resize(t.Context(), 2))
		})
	}
}
