package recipestest_test

import (
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/recipestest"
)

func TestServerReportsItsVersion(t *testing.T) {
	everywhere(t, func(t *testing.T, s *recipestest.Server) {
		require.Regexp(t, regexp.MustCompile(`^3\.\d+\.\d+$`), s.Version())
	})
}

func TestVersionOfNoServerFailsTheTest(t *testing.T) {
	t.Parallel()
	s := recipestest.Start(t)
	f := run(t, func(tb testing.TB) {
		attached := recipestest.Attach(tb, s.ConnectString())
		s.Embedded().Stop()
		require.Empty(t, attached.Version())
	})
	require.Len(t, f.errors, 1)
	require.Contains(t, f.errors[0], s.ConnectString())
}
