package suite

import (
	"cmp"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/recipestest"
)

// A Feature is a feature that only some versions of ZooKeeper have.
type Feature struct {
	name  string
	since []release // the first release of each line of releases that has it, oldest first
}

type release struct{ major, minor, patch int }

// Features that tests need.
var (
	Containers    = Feature{"container nodes", []release{{3, 5, 0}}}
	TTL           = Feature{"TTL nodes", []release{{3, 5, 0}}}
	TLS           = Feature{"TLS", []release{{3, 5, 0}}}
	EnforcedAuth  = Feature{"enforced authentication", []release{{3, 7, 0}}}
	EnforcedQuota = Feature{"enforced quotas", []release{{3, 7, 0}}}
	HiddenStats   = Feature{"permission to ask whether a node exists", []release{{3, 8, 4}, {3, 9, 2}}}
)

// Needs skips t if the servers' version lacks a feature that t needs.
func Needs(t testing.TB, srv *recipestest.Server, f Feature) {
	t.Helper()
	if version := srv.Version(); !f.in(t, version) {
		t.Skipf("ZooKeeper %s has no %s", version, f.name)
	}
}

// Has reports whether the servers' version has f.
func Has(t testing.TB, srv *recipestest.Server, f Feature) bool {
	t.Helper()
	return f.in(t, srv.Version())
}

func (f Feature) in(t testing.TB, version string) bool {
	t.Helper()
	var v release
	_, err := fmt.Sscanf(version, "%d.%d.%d", &v.major, &v.minor, &v.patch)
	require.NoError(t, err, "version %q", version)

	has := false
	for _, r := range f.since {
		line := cmp.Or(cmp.Compare(v.major, r.major), cmp.Compare(v.minor, r.minor))
		if line < 0 {
			break
		}
		has = line > 0 || v.patch >= r.patch
	}
	return has
}
