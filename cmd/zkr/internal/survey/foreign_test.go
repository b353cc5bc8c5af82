package survey_test

import (
	"strings"
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/cmd/zkr/internal/survey"
	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

// TestForeignNodesAreRecognised makes nodes as the recipes of other libraries do. A name that ends
// in a hyphen, or in __, is of an ephemeral sequential node, and one with an asterisk of an
// ephemeral one.
func TestForeignNodesAreRecognised(t *testing.T) {
	const (
		uuid1 = "_c_01234567-89ab-cdef-0123-456789abcdef-"
		uuid2 = "_c_11234567-89ab-cdef-0123-456789abcdef-"
		hex1  = "0123456789abcdef0123456789abcdef"
		hex2  = "1123456789abcdef0123456789abcdef"
	)
	s := recipestest.Start(t)
	for name, try := range map[string]struct {
		data    string // of the path
		nodes   []string
		recipe  survey.Recipe
		library survey.Library
		states  []survey.State
		permits int
	}{
		"Curator's LeaderLatch": {
			nodes:  []string{uuid1 + "latch-", uuid2 + "latch-"},
			recipe: survey.Election, library: survey.Curator, states: []survey.State{survey.Holds, survey.Waits},
		},
		"Curator's LeaderSelector": {
			nodes:  []string{uuid1 + "lock-", uuid2 + "lock-"},
			recipe: survey.Lock, library: survey.Curator, states: []survey.State{survey.Holds, survey.Waits},
		},
		"Curator's InterProcessSemaphoreV2": {
			nodes:  []string{"leases", "locks", "leases/" + uuid1 + "lease-", "locks/" + uuid2 + "lock-"},
			recipe: survey.Semaphore, library: survey.Curator, states: []survey.State{survey.Holds, survey.Waits},
		},
		"Curator's DistributedDoubleBarrier": {
			nodes:  []string{"ready", "01234567-89ab-cdef-0123-456789abcdef*"},
			recipe: survey.DoubleBarrier, library: survey.Curator, states: []survey.State{survey.Inside},
		},
		"kazoo's Election": {
			nodes:  []string{hex1 + "__lock__", hex2 + "__lock__"},
			recipe: survey.Lock, library: survey.Kazoo, states: []survey.State{survey.Holds, survey.Waits},
		},
		"kazoo's Semaphore": {
			data: "2", nodes: []string{hex1 + "*", hex2 + "*"},
			recipe: survey.Semaphore, library: survey.Kazoo, states: []survey.State{survey.Holds, survey.Holds}, permits: 2,
		},
		"kazoo's DoubleBarrier": {
			nodes:  []string{hex1 + "*", "ready"},
			recipe: survey.DoubleBarrier, library: survey.Kazoo, states: []survey.State{survey.Inside},
		},
		"kazoo's Party": {
			nodes:  []string{hex1 + "__party__*"},
			recipe: survey.Group, library: survey.Kazoo, states: []survey.State{survey.Member},
		},
	} {
		t.Run(name, func(t *testing.T) {
			path, c := s.Root(t)+"/x", client(t, s)
			session := suite.Session(t, c)
			_, err := session.EnsurePath(t.Context(), path)
			require.NoError(t, err)
			_, err = session.Conn().Set(session.Path(path), []byte(try.data), -1)
			require.NoError(t, err)
			for _, node := range try.nodes {
				flags := int32(0)
				if name, ephemeral := strings.CutSuffix(node, "*"); ephemeral {
					node, flags = name, zk.FlagEphemeral
				} else if strings.HasSuffix(node, "-") || strings.HasSuffix(node, "__") {
					flags = zk.FlagEphemeralSequential
				}
				_, err := session.Conn().Create(session.Path(path+"/"+node), nil, flags, zk.WorldACL(zk.PermAll))
				require.NoError(t, err)
			}

			p := look(t, c, path)
			require.Equal(t, try.recipe, p.Recipe)
			require.Equal(t, try.states, states(p))
			require.Equal(t, try.permits, p.Permits)
			require.Empty(t, p.Unknown)
			require.Empty(t, p.Below)
			for _, contender := range p.Contenders {
				require.Equal(t, try.library, contender.Library)
				require.Empty(t, contender.Orphan)
			}
		})
	}
}
