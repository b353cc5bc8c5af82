package recipestest

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/zkrecipes/zkrecipes/internal/zkwire"
)

// Dump returns the node at path and all nodes below it, one a line, in the order of their paths:
// the path, the length and the beginning of the data, the version, and the session that an
// ephemeral node belongs to. Nodes that may not be read say so. It is made for logs: its format may
// change.
//
// Dump opens a session of its own. It blocks until the server has answered, and returns the error
// as a text if the server does not within 15 seconds. It may be called from any goroutine.
func (s *Server) Dump(path string) string {
	session, err := s.connect(reachTimeout)
	if err != nil {
		return fmt.Sprintf("cannot dump %s: %v\n", path, err)
	}
	defer session.close()

	var paths []string
	if err := session.walk([]string{path}, func(n node) { paths = append(paths, n.path) }); err != nil {
		return fmt.Sprintf("cannot dump %s: %v\n", path, err)
	}
	slices.Sort(paths)

	reads := make([]call, len(paths))
	for i, p := range paths {
		reads[i] = call{zkwire.OpGetData, readRequest(session.absolute(p))}
	}
	var b strings.Builder
	err = session.do(reads, func(i int, body []byte, err error) {
		switch {
		case errors.Is(err, errNoNode):
			return // it has gone meanwhile
		case err != nil:
			fmt.Fprintf(&b, "%s: %v\n", paths[i], err)
			return
		}

		d := zkwire.Decoder{Rest: body}
		data := d.Buffer()
		fmt.Fprintf(&b, "%s  version %d, %d bytes", paths[i], versionIn(d.Rest), len(data))
		if len(data) > 0 {
			fmt.Fprintf(&b, " %.100q", data)
		}
		if owner := ownerIn(d.Rest); owner != 0 {
			fmt.Fprintf(&b, ", session %#x", owner)
		}
		b.WriteByte('\n')
	})
	if err != nil {
		fmt.Fprintf(&b, "%v\n", err)
	}
	return b.String()
}
