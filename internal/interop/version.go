package interop

import (
	"fmt"
	"io"
	"net"
	"regexp"
	"strings"
	"time"
)

var versionPattern = regexp.MustCompile(`(?i)version: ([^,\s]+)`)

// version asks the first server of a connect string for its version, such as "3.8.0".
func version(connectString string) (string, error) {
	first, _, _ := strings.Cut(connectString, ",")
	conn, err := net.DialTimeout("tcp", first, answerTimeout)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(answerTimeout)); err != nil {
		return "", err
	}

	if _, err := io.WriteString(conn, "srvr"); err != nil {
		return "", err
	}
	answer, err := io.ReadAll(conn)
	if err != nil {
		return "", err
	}
	match := versionPattern.FindSubmatch(answer)
	if match == nil {
		return "", fmt.Errorf("no version in %q", answer)
	}
	return string(match[1]), nil
}
