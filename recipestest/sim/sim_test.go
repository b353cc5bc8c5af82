package sim_test

import (
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/recipestest"
	"github.com/zkrecipes/zkrecipes/recipestest/sim"
)

func TestFailureSaysHowToReplayIt(t *testing.T) {
	simulate := func(w *sim.World) {
		held := w.Exclusive("it")
		turns(w, held.Begin, turn{1, 10, 500}, turn{2, 11, 500})
	}

	f := sim.Find(t, simulate, sim.WithSeed(42), sim.WithFaults(sim.Stall, sim.Pause))
	require.NotNil(t, f)
	require.Contains(t, f.String(), "go test github.com/zkrecipes/zkrecipes/recipestest/sim -run '^TestFailureSaysHowToReplayIt$' -sim.seed=42 -sim.only='clients=1,2 faults='\n")
	require.NotEmpty(t, f.Faults)
	require.Empty(t, f.Enough)
	require.Contains(t, f.String(), "fails without faults")
	for _, fault := range f.Faults {
		require.Contains(t, f.String(), fault.String())
	}

	page := suite.Got(os.ReadFile(f.Timeline))(t)
	require.Contains(t, string(page), "client 2   token 2 begins")
	require.Contains(t, string(page), f.Faults[0].String())
}

// A client of go-zookeeper at a server that has lost its leader does not notice that its session is
// over.
func TestIsolatedServerAnswersPings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := recipestest.Start(t, recipestest.WithInMemory())
		link := srv.Link(t)
		const timeout = 2 * time.Second
		conn, _, err := zk.Connect([]string{srv.ConnectString()}, timeout, zk.WithDialer(link.Dial), zk.WithLogger(silence{}), zk.WithMaxConnBufferSize(1<<16), zk.WithMaxBufferSize(1<<16))
		require.NoError(t, err)
		defer conn.Close()
		suite.Got(conn.Create("/mine", nil, zk.FlagEphemeral, zk.WorldACL(zk.PermAll)))(t)
		link.Isolate()
		time.Sleep(3 * timeout)
		require.Equal(t, zk.StateHasSession, conn.State())
		s := suite.Got(srv.Client(t).Session(t.Context()))(t)
		require.False(t, suite.ReadAt(t, s.Conn().Exists, "/mine"))
		link.Heal()
	})
}

func TestExamples(t *testing.T) {
	for name, simulation := range map[string]func(*testing.T){
		"exclusive": simWorkers, "permits": simImports, "shared": simCatalogue, "bag": simTasks, "gate": simMigration,
		"rounds": simPhases, "find": simFindsTwoHolders,
	} {
		t.Run(name, simulation)
	}
}
