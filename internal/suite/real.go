package suite

import (
	"os"
	"testing"

	"github.com/zkrecipes/zkrecipes/recipestest"
)

// Real returns the servers that ZKRECIPES_SERVERS names. It starts none because that takes a module
// of its own (internal/real). The tests of a recipe should need only Go. Real skips t if no servers
// are named, or if -short leaves them out. With ZKRECIPES_REQUIRE_REAL=1 it fails t instead.
func Real(t testing.TB) *recipestest.Server {
	t.Helper()
	servers := os.Getenv("ZKRECIPES_SERVERS")
	if servers != "" && !testing.Short() {
		return recipestest.Attach(t, servers)
	}

	const missing = "no real server: `.ci/run real` starts one, or set ZKRECIPES_SERVERS to the connect string of yours, without -short"
	if os.Getenv("ZKRECIPES_REQUIRE_REAL") == "1" {
		t.Fatal("ZKRECIPES_REQUIRE_REAL=1, but " + missing)
	}
	t.Skip(missing)
	panic("unreachable")
}

// Settings of servers that a test can need. Package internal/real runs such servers.
const (
	SmallRequests       = "small requests"       // of at most 64 KiB
	CredentialsDemanded = "credentials demanded" // of every session, by the scheme digest
)

// RealWith is [Real] for servers with an unusual setting. It skips t unless ZKRECIPES_SERVERS_WITH
// says that the servers have it.
func RealWith(t testing.TB, setting string) *recipestest.Server {
	t.Helper()
	if with := os.Getenv("ZKRECIPES_SERVERS_WITH"); with != setting {
		t.Skipf("the servers must have %q, not %q: internal/real runs this test on such a server", setting, with)
	}
	return Real(t)
}
