package zkwire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
)

// ErrFrameSize is wrapped by the error for a frame whose length is negative or above the limit.
var ErrFrameSize = errors.New("bad frame length")

// lengthSize is the size of a frame's length.
const lengthSize = 4

// PayloadSize returns the length at the head of a frame. If the length is negative or above limit,
// it returns an error that wraps [ErrFrameSize]. head must have four bytes.
func PayloadSize(head []byte, limit int) (int, error) {
	n := int(int32(binary.BigEndian.Uint32(head)))
	if n < 0 || n > limit {
		return 0, fmt.Errorf("%w: %d", ErrFrameSize, n)
	}
	return n, nil
}

// ReadFrame reads one frame with a payload of at most limit bytes. It returns [io.EOF] if r ends
// before the frame begins, and [io.ErrUnexpectedEOF] if r ends within the frame. For a bad length
// its error wraps [ErrFrameSize]. A long frame takes memory only as its bytes arrive.
func ReadFrame(r io.Reader, limit int) ([]byte, error) {
	var head [lengthSize]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, err
	}
	n, err := PayloadSize(head[:], limit)
	if err != nil {
		return nil, err
	}

	// Most frames are short, so they take a single allocation.
	if n <= trusted {
		frame := make([]byte, lengthSize+n)
		copy(frame, head[:])
		if _, err := io.ReadFull(r, frame[lengthSize:]); err != nil {
			return nil, unexpected(err)
		}
		return frame, nil
	}

	// The length of a long frame can be a lie.
	frame, err := ReadLong(r, head[:], n)
	return frame, unexpected(err)
}

// ReadLong appends n bytes of r to b. It takes memory only as the bytes arrive.
func ReadLong(r io.Reader, b []byte, n int) ([]byte, error) {
	for n > 0 {
		begin, piece := len(b), min(n, max(trusted, len(b)))
		b = slices.Grow(b, piece)[:begin+piece]
		if _, err := io.ReadFull(r, b[begin:]); err != nil {
			return nil, err
		}
		n -= piece
	}
	return b, nil
}

// unexpected turns an end of the input within a frame into its error. Other errors stay as they
// are.
func unexpected(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// trusted is how many bytes we allocate only because a length says so.
const trusted = 64 << 10

// CutFrame splits the first frame off b. If b doesn't have the whole frame yet, it returns a nil
// frame. For a bad length its error wraps [ErrFrameSize]. The frame shares b's memory, but
// appending to it doesn't change rest.
func CutFrame(b []byte, limit int) (frame, rest []byte, err error) {
	if len(b) < lengthSize {
		return nil, b, nil
	}
	n, err := PayloadSize(b, limit)
	if err != nil {
		return nil, b, err
	}

	end := lengthSize + n
	if len(b) < end {
		return nil, b, nil
	}

	// The third index keeps an append from overwriting rest.
	return b[:end:end], b[end:], nil
}

// SetLength writes the length of frame into its first four bytes. Functions that append a frame
// leave those zero until the body is complete.
func SetLength(frame []byte) []byte {
	binary.BigEndian.PutUint32(frame, uint32(len(frame)-lengthSize))
	return frame
}
