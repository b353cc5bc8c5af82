package recipestest

import (
	"io"
	"regexp"
	"time"
)

var versionPattern = regexp.MustCompile(`(?i)zookeeper version: ([0-9.]+)`)

// Version returns the version of ZooKeeper that the server reports ("3.8.0", for example). A test
// can skip itself if the server lacks something. With several servers, Version asks the first. If
// it doesn't answer the four-letter word srvr within ten seconds, the test fails, and Version
// returns an empty string. Any goroutine may call it.
func (s *Server) Version() string {
	s.tb.Helper()
	answer, err := s.askVersion()
	if err != nil {
		s.tb.Errorf("recipestest: version of %s: %v", s.connectString, err)
		return ""
	}

	match := versionPattern.FindSubmatch(answer)
	if match == nil {
		s.tb.Errorf("recipestest: version of %s: there is none in %q", s.connectString, answer)
		return ""
	}
	return string(match[1])
}

func (s *Server) askVersion() ([]byte, error) {
	const limit = 10 * time.Second
	hosts, _ := s.addresses()
	conn, err := s.Dial("tcp", hosts[0], limit)
	if err != nil {
		return nil, err
	}

	defer conn.Close()

	if err := conn.SetDeadline(time.Now().Add(limit)); err != nil {
		return nil, err
	}
	// A four-letter word takes the place of a handshake.
	if _, err := io.WriteString(conn, "srvr"); err != nil {
		return nil, err
	}

	return io.ReadAll(conn)
}
