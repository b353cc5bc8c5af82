package interop

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/zkrecipes/zkrecipes/recipestest"
)

//go:embed CuratorPeer.java
var curatorProgram []byte

// debianJars is where Debian's libcurator-recipes-java and its dependencies are.
const debianJars = "/usr/share/java"

// findJDK returns java, or why the peer can't run. The program is given as source, so it needs the
// compiler too.
var findJDK = sync.OnceValues(func() (java string, err error) {
	if _, err := exec.LookPath("javac"); err != nil {
		return "", err
	}
	if _, err := os.Stat(filepath.Join(debianJars, "curator-recipes.jar")); err != nil {
		return "", errors.Join(errors.New("package libcurator-recipes-java is not installed"), err)
	}
	return exec.LookPath("java")
})

// StartCurator starts Apache Curator and blocks until it has a session. Compiling the program takes
// about two seconds. Without a JDK or Curator the error wraps [ErrNotInstalled]. If ctx ends first,
// the error wraps ctx's cause. The caller must call [Peer.Close].
func StartCurator(ctx context.Context, o Options) (*Peer, error) {
	java, err := findJDK()
	if err != nil {
		return nil, fmt.Errorf("%w: Curator (Debian's libcurator-recipes-java, and a JDK): %w", ErrNotInstalled, err)
	}

	dir, err := os.MkdirTemp("", "zkrecipes-peer-")
	if err != nil {
		return nil, err
	}
	// The peer has compiled its program before start returns, so the source can go.
	defer os.RemoveAll(dir)
	source := filepath.Join(dir, "CuratorPeer.java")
	if err := os.WriteFile(source, curatorProgram, 0o600); err != nil {
		return nil, err
	}

	args := slices.Concat([]string{"-XX:+UseSerialGC", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"}, o.Java,
		[]string{"-cp", debianJars + "/slf4j-simple.jar:" + debianJars + "/*", source})
	return start(ctx, "Curator", o, java, args...)
}

// Curator runs Apache Curator against the servers until tb ends. Without a JDK or Curator it skips
// tb (or fails it, if ZKRECIPES_REQUIRE_REAL is 1). It also skips tb if the servers are ZooKeeper
// 3.4, which has no containers: this Curator makes all parents containers.
func Curator(tb testing.TB, connectString string) *Peer {
	tb.Helper()
	if v := recipestest.Attach(tb, connectString).Version(); strings.HasPrefix(v, "3.4.") {
		tb.Skipf("ZooKeeper %s has no container nodes, which Curator needs", v)
	}
	return run(tb, connectString, StartCurator)
}
