package interop

import (
	_ "embed"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

//go:embed CuratorPeer.java
var curatorProgram []byte

// debianJars is where Debian's libcurator-recipes-java and its dependencies are.
const debianJars = "/usr/share/java"

// findJDK returns java, or the reason why the peer cannot run. A program given as source needs the
// compiler, too.
var findJDK = sync.OnceValues(func() (java string, err error) {
	if _, err := exec.LookPath("javac"); err != nil {
		return "", err
	}
	if _, err := os.Stat(filepath.Join(debianJars, "curator-recipes.jar")); err != nil {
		return "", errors.Join(errors.New("package libcurator-recipes-java is not installed"), err)
	}
	return exec.LookPath("java")
})

// Curator runs Apache Curator against the servers until tb ends. Without a JDK or Curator it skips
// tb, or fails it if ZKRECIPES_REQUIRE_REAL is 1. It takes about two seconds to compile the
// program.
func Curator(tb testing.TB, connectString string) *Peer {
	tb.Helper()
	java, err := findJDK()
	if err != nil {
		unavailable(tb, "Curator", err)
	}
	source := filepath.Join(tb.TempDir(), "CuratorPeer.java")
	require.NoError(tb, os.WriteFile(source, curatorProgram, 0o600))
	return start(tb, "curator", exec.Command(java,
		"-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
		"-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
		"-cp", debianJars+"/slf4j-simple.jar:"+debianJars+"/*",
		source, connectString, strconv.FormatInt(sessionTimeout.Milliseconds(), 10)))
}
