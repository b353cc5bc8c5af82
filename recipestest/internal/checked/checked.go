// Package checked gives package sim the dialer with which a link checks handshakes. Users get it
// with every client of a link, so they need no function for it.
package checked

import (
	"net"
	"time"
)

// Dial connects through a *recipestest.Link. The link fails its test if a session goes back in time
// over such connections (see Client of that type). Package recipestest sets Dial.
var Dial func(link any, network, address string, timeout time.Duration) (net.Conn, error)
