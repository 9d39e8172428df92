"""Stock brokers and stock clients read what was streamed: real servers, nothing of ours in them."""
