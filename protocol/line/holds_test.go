package line_test

import (
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/lock"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

// Who holds is decided by each contender's own rules.
func TestContenderHoldsByTheRulesOfItsLibrary(t *testing.T) {
	const ours = "0123456789abcdef-01234567-"
	for name, test := range map[string]struct {
		nodes []string
		holds []bool
	}{
		"mutexes":                 {[]string{ours + "lock-", ours + "lock-"}, []bool{true, false}},
		"readers and a writer":    {[]string{ours + "read-", "x__READ__", ours + "write-", ours + "read-"}, []bool{true, true, false, false}},
		"reader behind a mutex":   {[]string{ours + "lock-", ours + "read-"}, []bool{true, false}},
		"LeaderLatch behind ours": {[]string{ours + "lock-", "_c_x-latch-", "_c_x-latch-"}, []bool{true, true, false}},
	} {
		t.Run(name, func(t *testing.T) {
			suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
				path, c := srv.Root(t)+"/lock", srv.Client(t)
				suite.Keep(t, c, path)
				for _, node := range test.nodes {
					_, err := suite.Session(t, c).Conn().Create(path+"/"+node, nil, zk.FlagSequence, zk.WorldACL(zk.PermAll))
					require.NoError(t, err)
				}
				line, err := lock.New(c, path).Contenders(t.Context())
				require.NoError(t, err)
				var holds []bool
				for _, c := range line {
					holds = append(holds, c.Holds)
				}
				require.Equal(t, test.holds, holds)
			})
		})
	}
}
