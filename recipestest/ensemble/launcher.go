package ensemble

import (
	"fmt"
	"os"
	"testing"

	"github.com/zkrecipes/zkrecipes/recipestest/ensemble/launch"
)

// leftOut returns an error if this run leaves real servers out.
func leftOut() error {
	if os.Getenv("ZKRECIPES_REAL") == "0" {
		return fmt.Errorf("%w: ZKRECIPES_REAL=0 leaves real servers out", launch.ErrUnavailable)
	}
	if testing.Short() {
		return fmt.Errorf("%w: -short leaves real servers out", launch.ErrUnavailable)
	}
	return nil
}

// findLauncher looks for a way to run ZooKeeper, unless real servers are left out.
func findLauncher() (launch.Launcher, error) {
	if err := leftOut(); err != nil {
		return nil, err
	}
	launcher, err := launch.Find()
	if err != nil {
		return nil, fmt.Errorf("%w\nset ZKRECIPES_SERVERS to the connect string of a running ZooKeeper to use that", err)
	}
	return launcher, nil
}

// unavailable ends tb because there is no server. It skips tb, or fails it if
// ZKRECIPES_REQUIRE_REAL=1.
func unavailable(tb testing.TB, err error) {
	tb.Helper()
	if os.Getenv("ZKRECIPES_REQUIRE_REAL") == "1" {
		tb.Fatalf("ensemble: ZKRECIPES_REQUIRE_REAL=1, but %v", err)
	}
	tb.Skipf("ensemble: %v", err)
}
