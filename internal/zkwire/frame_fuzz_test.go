package zkwire

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"github.com/stretchr/testify/require"
)

// FuzzFrames cuts arbitrary bytes into frames in both ways, which must agree.
func FuzzFrames(f *testing.F) {
	f.Add([]byte("\x00\x00\x00\x02ab\x00\x00\x00\x00"), uint16(10))
	f.Add([]byte("\x00\x00\x00\x05ab"), uint16(10))
	f.Add([]byte("\xff\xff\xff\xff"), uint16(10))
	f.Add([]byte("\x00\x00\x00\x0b"), uint16(10))
	f.Fuzz(func(t *testing.T, b []byte, limit uint16) {
		in, rest := bytes.NewReader(b), b
		for {
			read, failed := ReadFrame(in, int(limit))
			frame, left, err := CutFrame(rest, int(limit))
			switch {
			case errors.Is(failed, ErrFrameSize):
				require.ErrorIs(t, err, ErrFrameSize)
				return
			case failed != nil: // the bytes have ended
				require.NoError(t, err)
				require.Nil(t, frame)
				require.Equal(t, errors.Is(failed, io.EOF), len(rest) == 0)
				return
			}
			require.NoError(t, err)
			require.Equal(t, read, frame)
			require.LessOrEqual(t, len(frame), int(limit)+lengthSize)
			rest = left
			ParseRequestHeader(frame)
			ParseReplyHeader(frame)
		}
	})
}
