"""What proves a drafter or verifier exact; shipped, so that anyone can prove their own."""
