package recipestest

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/zkrecipes/zkrecipes/internal/zkwire"
)

// Dump returns the node at path and all nodes below it, one a line and sorted by path. A line has
// the path, the length and the beginning of the data, the version, and the session of an ephemeral
// node. If a node may not be read, its line says so. Dump is for logs, so its format can change.
//
// Dump opens a session of its own. It blocks until the server has answered. If that takes more than
// 15 seconds, Dump returns the error as text. Any goroutine may call it.
func (s *Server) Dump(path string) string {
	session, err := s.connect(reachTimeout)
	if err != nil {
		return fmt.Sprintf("cannot dump %s: %v\n", path, err)
	}
	defer session.close()

	// Find the nodes.
	var paths []string
	if err := session.walk([]string{path}, func(n node) { paths = append(paths, n.path) }); err != nil {
		return fmt.Sprintf("cannot dump %s: %v\n", path, err)
	}
	slices.Sort(paths)

	// Read their data.
	reads := make([]call, len(paths))
	for i, p := range paths {
		reads[i] = call{zkwire.OpGetData, readRequest(session.absolute(p))}
	}
	var b strings.Builder
	err = session.do(reads, func(i int, body []byte, err error) {
		switch {
		case errors.Is(err, errNoNode):
			return // it was deleted meanwhile
		case err != nil:
			fmt.Fprintf(&b, "%s: %v\n", paths[i], err)
			return
		}

		d := zkwire.Decoder{Rest: body}
		data, stat := d.Buffer(), statIn(d.Rest)
		fmt.Fprintf(&b, "%s  version %d, %d bytes", paths[i], stat.Version, len(data))
		if len(data) > 0 {
			fmt.Fprintf(&b, " %.100q", data)
		}
		if stat.EphemeralOwner != 0 {
			fmt.Fprintf(&b, ", session %#x", stat.EphemeralOwner)
		}
		b.WriteByte('\n')
	})
	if err != nil {
		fmt.Fprintf(&b, "%v\n", err)
	}

	return b.String()
}
