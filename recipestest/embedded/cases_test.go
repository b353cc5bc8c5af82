package embedded_test

import (
	"flag"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/internal/transcript"
	"github.com/zkrecipes/zkrecipes/recipestest/embedded"
)

var update = flag.Bool("update", false, "write the transcripts into the files of the cases")

// What clients are sent is in the files of the cases, for each version that the server behaves
// like. A follower that doesn't lag sends the same as its leader. So do servers with a directory,
// and over TCP.
func TestCasesHaveTheirTranscripts(t *testing.T) {
	for _, version := range []string{"3.8", "3.9"} {
		for _, name := range []string{"leader", "follower", "directory", "tcp"} {
			t.Run(version+" "+name, func(t *testing.T) {
				t.Parallel()
				dial := dialer(t, version, name)
				var all strings.Builder
				for _, c := range transcript.Cases(version) {
					lines, err := transcript.Play(dial, "/case", c.Steps)
					require.NoError(t, err, c.Name)
					fmt.Fprintf(&all, "# %s\n\n%s\n\n", c.Name, strings.Join(lines, "\n"))
				}

				golden := filepath.Join("../../internal/transcript", "cases-"+version+".txt")
				if *update && name == "leader" {
					require.NoError(t, os.WriteFile(golden, []byte(all.String()), 0o644))
				}
				want := suite.Got(os.ReadFile(golden))(t)
				require.Equal(t, strings.Split(string(want), "\n"), strings.Split(all.String(), "\n"), "go test -update writes these")
			})
		}
	}
}

// dialer returns how to reach a new server.
func dialer(t *testing.T, version, name string) func() (net.Conn, error) {
	t.Helper()
	cfg := embedded.Config{Version: version, ContainerInterval: time.Hour, InMemory: name != "tcp"}
	if name == "directory" {
		cfg.Dir = t.TempDir()
		cfg = cfg.WithSync(lazily)
	}
	s := start(t, cfg)
	switch name {
	case "follower":
		f := s.Follower()
		return func() (net.Conn, error) { return f.Dial("tcp", "", waitLimit) }
	case "tcp":
		return func() (net.Conn, error) { return net.Dial("tcp", s.ConnectString()) }
	}
	return func() (net.Conn, error) { return s.Dial("tcp", "", waitLimit) }
}
