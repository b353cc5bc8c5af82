package reach_test

import (
	"io"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/recipestest/ensemble/reach"
)

// linked returns a link, and both sides of a connection over it.
func linked(t *testing.T) (_ *reach.Link, addr string, dialled, accepted net.Conn) {
	t.Helper()
	target := suite.Got(net.Listen("tcp", reach.Local(0)))(t)
	t.Cleanup(func() { require.NoError(t, target.Close()) })

	link := reach.NewLink()
	t.Cleanup(link.Close)
	port := suite.Got(link.Listen(reach.Local(0), target.Addr().String()))(t)

	addr = reach.Local(port)
	dialled = dial(t, addr)
	accepted = suite.Got(target.Accept())(t)
	t.Cleanup(func() { _ = accepted.Close() })
	return link, addr, dialled, accepted
}

func dial(t *testing.T, addr string) net.Conn {
	t.Helper()
	conn := suite.Got(net.Dial("tcp", addr))(t)
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// passes expects that text arrives, and nothing else before it.
func passes(t *testing.T, from, to net.Conn, text string) {
	t.Helper()
	suite.Got(io.WriteString(from, text))(t)
	arrives(t, to, text)
}

func arrives(t *testing.T, to net.Conn, text string) {
	t.Helper()
	require.NoError(t, to.SetReadDeadline(time.Time{}))
	got := make([]byte, len(text))
	suite.Got(io.ReadFull(to, got))(t)
	require.Equal(t, text, string(got))
}

// nothingArrives expects no bytes for a moment. It cannot fail because the machine is slow.
func nothingArrives(t *testing.T, to net.Conn) {
	t.Helper()
	require.NoError(t, to.SetReadDeadline(time.Now().Add(50*time.Millisecond)))
	n, err := to.Read(make([]byte, 1))
	require.Zero(t, n)
	require.ErrorContains(t, err, "timeout")
}

func TestStallOfOneDirectionLeavesTheOther(t *testing.T) {
	link, _, dialled, accepted := linked(t)
	link.Set(reach.Traffic{Stalled: true}, reach.Traffic{})
	suite.Got(io.WriteString(dialled, "late"))(t)
	passes(t, accepted, dialled, "back")
	nothingArrives(t, accepted)

	link.Set(reach.Traffic{}, reach.Traffic{Stalled: true})
	arrives(t, accepted, "late")
	suite.Got(io.WriteString(accepted, "later"))(t)
	nothingArrives(t, dialled)
}

func TestHalvedTrafficStopsInTheMiddle(t *testing.T) {
	link, _, dialled, accepted := linked(t)
	passes(t, dialled, accepted, "whole")
	link.Set(reach.Traffic{Halved: true}, reach.Traffic{})
	suite.Got(io.WriteString(dialled, "firstsecond"))(t)
	arrives(t, accepted, "first")
	nothingArrives(t, accepted)

	link.Set(reach.Traffic{}, reach.Traffic{})
	arrives(t, accepted, "second")
}

func TestNewConnectionsOfAStalledLinkAreReset(t *testing.T) {
	link, addr, _, _ := linked(t)
	link.Set(reach.Traffic{}, reach.Traffic{Stalled: true})
	conn, err := net.Dial("tcp", addr) // the reset may come before it returns
	if err == nil {
		_, err = conn.Read(make([]byte, 1))
		_ = conn.Close()
	}
	require.ErrorContains(t, err, "reset")
}

func TestNewConnectionsOfASilentLinkWait(t *testing.T) {
	link, addr, _, _ := linked(t)
	link.Set(reach.Traffic{Stalled: true, Silent: true}, reach.Traffic{})
	nothingArrives(t, dial(t, addr))
}

func TestResetIsAResetOnBothSides(t *testing.T) {
	link, _, dialled, accepted := linked(t)
	passes(t, dialled, accepted, "before")
	link.Reset()
	for _, conn := range []net.Conn{dialled, accepted} {
		require.ErrorContains(t, suite.Err(conn.Read(make([]byte, 1))), "reset")
	}
}

func TestResetOfTheDiallingSideLeavesTheOtherOpen(t *testing.T) {
	link, _, dialled, accepted := linked(t)
	passes(t, dialled, accepted, "before")
	link.Set(reach.Traffic{Stalled: true}, reach.Traffic{Stalled: true})
	link.ResetDialling()
	require.ErrorContains(t, suite.Err(dialled.Read(make([]byte, 1))), "reset")
	suite.Got(io.WriteString(accepted, "still open"))(t)
	nothingArrives(t, accepted)
}

func TestDelayedBytesTakeAsLong(t *testing.T) {
	link, _, dialled, accepted := linked(t)
	const delay = 50 * time.Millisecond
	link.Set(reach.Traffic{Delay: delay, Jitter: delay}, reach.Traffic{})
	begin := time.Now()
	passes(t, dialled, accepted, "slow")
	require.GreaterOrEqual(t, time.Since(begin), delay)
}
