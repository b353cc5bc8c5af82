package session

import (
	"crypto/sha1" //nolint:gosec // servers compute it
	"encoding/base64"
	"fmt"
	"strings"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/conn"
	"github.com/zkrecipes/zkrecipes/internal/zkwire"
)

// identify finds out the default ACL of new nodes, which grants everything to the identities of the
// credentials and nothing to others. (The connection can have more identities than these.)
func (c *Client) identify(s *Bound) error {
	var own, asked []zk.ACL
	for _, a := range c.Credentials {
		switch {
		case !a.Identifies():
			continue
		case a.Scheme == "digest":
			own = append(own, zk.ACL{Perms: zk.PermAll, Scheme: "digest", ID: digestOf(a.Secret())})
			continue
		case c.Root.AnyACL:
			continue
		}

		// Only the servers know which identity a credential of another scheme is.
		if asked == nil {
			var err error
			if asked, err = s.whoAmI(); err != nil {
				return fmt.Errorf("%w: the servers do not say which identity that is: give WithACL: %w", zk.ErrAuthFailed, err)
			}
		}

		known := len(own)

		for _, id := range asked {
			if id.Scheme == a.Scheme {
				own = append(own, id)
			}
		}
		if len(own) == known {
			return fmt.Errorf("auth %s: %w: the servers know no identity of this scheme: give WithACL", a, zk.ErrAuthFailed)
		}
	}

	if len(own) > 0 {
		c.ownACL.Store(&own)
	}

	return nil
}

// digestOf returns the identity that servers make of a credential of the scheme "digest".
func digestOf(credential []byte) string {
	user, _, _ := strings.Cut(string(credential), ":")
	sum := sha1.Sum(credential) //nolint:gosec // servers compute it
	return user + ":" + base64.StdEncoding.EncodeToString(sum[:])
}

// whoAmI asks the server for the identities of the connection.
func (b *Bound) whoAmI() (ids []zk.ACL, err error) {
	return Do(b.Life, b, func(*zk.Conn) (ids []zk.ACL, err error) {
		w := b.Conn.Link()
		if w == nil {
			return nil, zk.ErrConnectionClosed
		}

		r := w.Ask(zkwire.OpWhoAmI, "", nil)
		if r.Code != zkwire.CodeOK {
			return nil, conn.ErrorOf(r.Code)
		}

		body := zkwire.Decoder{Rest: r.Body}
		body.Vector(func() {
			ids = append(ids, zk.ACL{Perms: zk.PermAll, Scheme: body.String(), ID: body.String()})
		})
		if body.Bad {
			err = zkwire.ErrMalformed
		}

		return ids, err
	})
}
