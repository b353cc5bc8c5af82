package protocol

import (
	"github.com/zkrecipes/zkrecipes/internal/conn"
	"github.com/zkrecipes/zkrecipes/internal/session"
)

// WithNet makes connections with dial, to the addresses that lookup returns.
func WithNet(dial conn.DialFunc, lookup conn.LookupFunc) ConnectOption {
	return connectOption(func(c *session.Client) error {
		c.Dial, c.Lookup = dial, lookup
		return nil
	})
}
